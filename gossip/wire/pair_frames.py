"""The body of a proposal: some values of a shard, for `gossip.exchange.sparse_pairs`."""

from __future__ import annotations

import numpy as np
import xxhash

from gossip.errors import Reason, Rejected
from gossip.wire.body import Arrival, Body, RunContext, Written
from gossip.wire.messages import Proposal

__all__ = ["PROPOSAL"]


def _write_proposal(proposal: Proposal, context: RunContext) -> Written:
    assert context.pairs is not None, "proposals are made only where pairs exchange some values"
    payload = proposal.payload
    return payload.data, (context.dtypes[proposal.shard], len(payload), context.pairs.spelled), None


def _read_proposal(arrival: Arrival) -> Proposal:
    turn, shard, weight, fraction, dtype, length, codec = arrival.fields
    context, body = arrival.context, arrival.body
    if context.pairs is None:
        raise arrival.rejected(Reason.DTYPE, f"pairs of this run exchange no values, so codec cannot be {codec!r:.60}")
    if codec != context.pairs.spelled:
        raise arrival.rejected(Reason.DTYPE, f"codec must be {context.pairs.spelled!r}, not {codec!r:.60}")
    if dtype != context.dtypes[shard]:
        ours = context.dtypes[shard]
        raise arrival.rejected(Reason.DTYPE, f"dtype must be {ours!r}, as shard {shard} has, not {dtype!r:.40}")
    start, stop = context.layout.bounds[shard]
    told = context.pairs.told
    expected = told.size(stop - start, context.layout.dtypes[shard])
    if body is None or type(length) is not int or not length == len(body) == expected:
        found = 0 if body is None else len(body)
        detail = f"length and the body must be {expected} bytes for shard {shard}, not {length!r:.40} and {found}"
        raise arrival.rejected(Reason.SHAPE, detail)
    arrival.check_seal(xxhash.xxh3_64_intdigest(body))
    payload = np.frombuffer(body, np.uint8)
    try:
        some = told.decode_some(payload, stop - start, context.layout.dtypes[shard])
    except Rejected as error:
        raise arrival.rejected(error.reason, error.detail) from None
    return Proposal(arrival.origin, arrival.destination, turn, shard, weight, fraction, some, payload)


PROPOSAL = Body(
    "`PairCoding.told` of the values that are offered",
    _write_proposal,
    _read_proposal,
    checked_in_read=("dtype", "length", "codec"),
)
