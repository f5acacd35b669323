"""The bodies of collective exchanges (`gossip.collective`): chunks, and the requests for missing ones."""

from __future__ import annotations

import numpy as np
import xxhash

from gossip.errors import Reason
from gossip.wire.body import Arrival, Body, RunContext, Written
from gossip.wire.fields import count
from gossip.wire.limits import CHUNK_LIMIT, LACK_LIMIT, NEWS_LIMIT
from gossip.wire.messages import Chunk, Lack, Subject

__all__ = ["CHUNK", "LACK"]

#: A step and an index.
_PAIR = np.dtype("<u4")
_PAIR_BYTES = 2 * _PAIR.itemsize


def _write_lack(lack: Lack, _: RunContext) -> Written:
    return memoryview(np.array(lack.wanted, _PAIR).tobytes()), (), None


def _read_lack(arrival: Arrival) -> Lack:
    body, (subject, number, digest) = arrival.whole(NEWS_LIMIT), arrival.fields
    pairs, rest = divmod(len(body), _PAIR_BYTES)
    if rest or not 0 < pairs <= LACK_LIMIT:
        detail = f"the body must be 1 to {LACK_LIMIT} pairs of {_PAIR_BYTES} bytes, not {len(body)} bytes"
        raise arrival.rejected(Reason.MALFORMED, detail)
    wanted = tuple((step, index) for step, index in np.frombuffer(body, _PAIR).reshape(-1, 2).tolist())
    return Lack(arrival.origin, arrival.destination, Subject(subject), number, digest, wanted)


def _write_chunk(chunk: Chunk, _: RunContext) -> Written:
    body = chunk.values.view(np.uint8).data
    return body, (len(body),), None


def _read_chunk(arrival: Arrival) -> Chunk:
    subject, number, digest, step, index, length = arrival.fields
    body = arrival.body
    if body is None or len(body) < length:
        found = 0 if body is None else len(body)
        raise arrival.rejected(Reason.TRUNCATED, f"the body must have {length} bytes, as its length says, not {found}")
    most = min(length, CHUNK_LIMIT)
    if len(body) > most:
        raise arrival.rejected(Reason.OVERSIZED, f"the body must have at most {most} bytes, not {len(body)}")
    arrival.check_seal(xxhash.xxh3_64_intdigest(body))
    values = np.frombuffer(body, np.uint8)
    return Chunk(arrival.origin, arrival.destination, Subject(subject), number, digest, step, index, values)


LACK = Body("pairs of a step and an index, 4 bytes each, little-endian", _write_lack, _read_lack)
#: Sums may overflow: whoever adds them up decides about NaN and infinity.
CHUNK = Body("the values, raw", _write_chunk, _read_chunk, (count("length"),))
