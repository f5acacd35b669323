"""Offers of `gossip.exchange.sparse_pairs` as the fields of a header and a body, and back.

proposal  ... turn, shard, weight, fraction, dtype, length of the body in bytes, codec; the body is `PairCoding.told`
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash

from gossip.codecs.pair_coding import PairCoding
from gossip.errors import Reason, Rejected
from gossip.values.layout import Layout
from gossip.wire.messages import Address, Proposal

__all__ = ["decoded", "encoded"]

_TURN_LIMIT = 2**53


def encoded(message: Proposal, layout: Layout, coding: PairCoding) -> tuple[list[Any], memoryview]:
    """Return the fields behind the common ones, and the body."""
    fields = [message.turn, message.shard, message.weight, message.fraction, layout.dtypes[message.shard].name]
    return [*fields, len(message.payload), coding.spelled], message.payload.data


def decoded(
    origin: Address,
    destination: Address,
    fields: list[Any],
    body: memoryview | None,
    seal: int,
    layout: Layout,
    coding: PairCoding | None,
    weight_limit: float,
) -> Proposal:
    """Return the message of these fields and this body, whose checksum is the seal, or raise `Rejected`."""
    turn, shard, weight, fraction, dtype, length, codec = fields
    if type(shard) is not int or not 0 <= shard < layout.shards:
        raise Rejected(Reason.SHAPE, f"shard {shard!r:.40} of {layout.shards}", origin.rank)
    if coding is None or codec != coding.spelled or dtype != layout.dtypes[shard].name:
        raise Rejected(Reason.DTYPE, f"offers values of {dtype!r:.40} as {codec!r:.60}", origin.rank)
    if type(turn) is not int or not 0 <= turn < _TURN_LIMIT:
        raise Rejected(Reason.MALFORMED, f"turn is {turn!r:.40}", origin.rank)
    if type(weight) is not float or not 0 < weight <= weight_limit:
        raise Rejected(Reason.WEIGHT, f"a weight of {weight!r:.40}", origin.rank)
    if type(fraction) is not float or not 0 < fraction <= 0.5:
        raise Rejected(Reason.MALFORMED, f"wants to be moved by {fraction!r:.40}", origin.rank)
    start, stop = layout.bounds[shard]
    expected = coding.told.size(stop - start, layout.dtypes[shard])
    if body is None or type(length) is not int or not length == len(body) == expected:
        raise Rejected(Reason.SHAPE, f"offers of shard {shard} have {expected} bytes, not {length!r:.40}", origin.rank)
    if xxhash.xxh3_64_intdigest(body) != seal:
        raise Rejected(Reason.CHECKSUM, "the checksum does not fit the bytes", origin.rank)
    payload = np.frombuffer(body, np.uint8)
    try:
        told = coding.told.decode_some(payload, stop - start, layout.dtypes[shard])
    except Rejected as error:
        raise Rejected(error.reason, error.detail, origin.rank) from None
    return Proposal(origin, destination, turn, shard, weight, fraction, told, payload)
