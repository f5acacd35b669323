"""Bodies that are values of the model: those of parcels, and of the pieces that a newcomer gets.

Values as they are go raw, little-endian, and are read without a copy; they are checked for NaN and infinity in the walk
that checks their checksum. Values in a codec are allocated after everything that the header claims has been checked.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import xxhash

from gossip.codecs.trusted import trusted
from gossip.errors import Reason, Rejected
from gossip.values.blocks import Values, inspect
from gossip.wire.body import Arrival, Body, RunContext, Written
from gossip.wire.limits import ANNEX_BYTES, PIECES_LIMIT
from gossip.wire.messages import Parcel, Piece

__all__ = ["PARCEL", "PIECE"]

assert sys.byteorder == "little", "values go over the wire as they are in memory, which must be little-endian"


def _write_parcel(parcel: Parcel, context: RunContext) -> Written:
    body = parcel.values.view(np.uint8).data if parcel.payload is None else parcel.payload.data
    return body, (context.dtypes[parcel.shard], len(body), parcel.codec), parcel.seal


def _read_parcel(arrival: Arrival) -> Parcel:
    sequence, turn, shard, weight, ask, dtype, length, codec = arrival.fields
    values = _plain(arrival, shard, dtype, length) if codec == "" else _coded(arrival, shard, dtype, length, codec)
    pairs, differences = arrival.context.pairs, arrival.context.differences
    moves = pairs is not None and codec == pairs.spelled
    differs = differences is not None and codec == differences.spelled
    if (weight == 0) != (moves or differs):
        rule = "0" if moves or differs else "above 0"
        raise arrival.rejected(Reason.WEIGHT, f"weight must be {rule} with the codec {codec!r}, not {weight}")
    if (moves and ask) or (differs and not ask):
        rule = "0" if moves else "above 0"
        raise arrival.rejected(Reason.MALFORMED, f"ask must be {rule} with the codec {codec!r}, not {ask}")
    return Parcel(arrival.origin, arrival.destination, sequence, turn, shard, weight, values, ask)


def _write_piece(piece: Piece, _: RunContext) -> Written:
    body = piece.values.view(np.uint8).data
    return body, (piece.values.dtype.name, len(body)), None


def _read_piece(arrival: Arrival) -> Piece:
    piece, pieces, turn, dtype, length = arrival.fields
    shards = arrival.context.layout.shards
    if not shards <= pieces <= PIECES_LIMIT:
        raise arrival.rejected(
            Reason.SHAPE, f"pieces must be from {shards}, the shards of the model, to {PIECES_LIMIT}, not {pieces}"
        )
    if piece >= pieces:
        raise arrival.rejected(Reason.SHAPE, f"piece must be below the {pieces} pieces that there are, not {piece}")
    values = _plain(arrival, piece, dtype, length) if piece < shards else _annex(arrival, dtype, length)
    return Piece(arrival.origin, arrival.destination, piece, pieces, turn, values)


def _plain(arrival: Arrival, shard: int, dtype: Any, length: Any) -> Values:
    """Return the values of a shard that go as they are."""
    context, body = arrival.context, arrival.body
    if dtype != context.dtypes[shard]:
        raise _dtype_rejected(arrival, shard, dtype)
    expected = context.layout.nbytes(shard)
    if type(length) is not int or length != expected:
        detail = f"length must be {expected}, the bytes of shard {shard}, not {length!r:.40}"
        raise arrival.rejected(Reason.SHAPE, detail)
    found = 0 if body is None else len(body)
    if body is None or found != length:
        reason = Reason.TRUNCATED if found < length else Reason.OVERSIZED
        raise arrival.rejected(reason, f"the body must have {length} bytes, as its length says, not {found}")
    values: Values = np.frombuffer(body, dtype=context.layout.dtypes[shard])
    seal, finite = inspect(values)
    arrival.check_seal(seal)
    if not finite:
        raise arrival.rejected(Reason.NOT_FINITE, f"the values of shard {shard} contain NaN or infinity")
    return values


def _coded(arrival: Arrival, shard: int, dtype: Any, length: Any, codec: Any) -> Values:
    """Return the values of a shard that go in a codec."""
    context = arrival.context
    decoder = trusted(codec, context.codec) if type(codec) is str else None
    if context.differences is not None and codec == context.differences.spelled:
        decoder = context.differences
    if decoder is None:
        raise arrival.rejected(Reason.DTYPE, f"codec must be one that this peer decodes, not {codec!r:.60}")
    if dtype != context.dtypes[shard]:
        raise _dtype_rejected(arrival, shard, dtype)
    start, stop = context.layout.bounds[shard]
    most = decoder.size(stop - start, context.layout.dtypes[shard])
    body = _sized(arrival, length, most, f"for shard {shard} as {codec}")
    arrival.check_seal(xxhash.xxh3_64_intdigest(body))
    try:
        return decoder.decode(body, stop - start, context.layout.dtypes[shard])
    except Rejected as error:
        raise arrival.rejected(error.reason, error.detail) from None


def _annex(arrival: Arrival, dtype: Any, length: Any) -> Values:
    """Return the bytes of a piece of the annex."""
    if dtype != "uint8":
        raise arrival.rejected(Reason.SHAPE, f"dtype must be 'uint8' in the annex, not {dtype!r:.40}")
    body = _sized(arrival, length, ANNEX_BYTES, "in the annex")
    arrival.check_seal(xxhash.xxh3_64_intdigest(body))
    return np.frombuffer(body, dtype=np.uint8)


def _dtype_rejected(arrival: Arrival, shard: int, dtype: Any) -> Rejected:
    ours = arrival.context.dtypes[shard]
    return arrival.rejected(Reason.DTYPE, f"dtype must be {ours!r}, as shard {shard} has, not {dtype!r:.40}")


def _sized(arrival: Arrival, length: Any, most: int, where: str) -> memoryview:
    """Return a body that has the length that its header says, and at most this."""
    body = arrival.body
    if body is None or type(length) is not int or length != len(body):
        found = 0 if body is None else len(body)
        raise arrival.rejected(Reason.SHAPE, f"length must be {found}, the bytes of the body, not {length!r:.40}")
    if length > most:
        raise arrival.rejected(Reason.SHAPE, f"length must be at most {most} {where}, not {length}")
    return body


PARCEL = Body(
    "the values, raw where the codec is empty, otherwise as the codec writes them",
    _write_parcel,
    _read_parcel,
    checked_in_read=("dtype", "length", "codec"),
)
PIECE = Body("the values, raw; of the annex, its bytes", _write_piece, _read_piece, checked_in_read=("dtype", "length"))
