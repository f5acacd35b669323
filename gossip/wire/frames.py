"""Messages as bytes: a msgpack header in one frame, the body of those that have one in a second.

    frame 0   header (msgpack array), then 8 bytes where there is a body: its xxh3 checksum, then 8 bytes: the xxh3
              checksum of all before
    frame 1   the values of a parcel or piece, raw, little-endian; the bytes of news, roll, look and shown; absent for
              other messages

    header    [version, run, kind, origin rank, origin incarnation, destination rank, destination incarnation,
               ... then by kind]
    parcel    ... sequence, turn, shard, weight, ask, dtype, length of the body in bytes, codec (empty: the values as
              they are; docs/reference/codecs.md has the others). The weight is 0 exactly if the codec is topk-pair or
              choco
    ack       ... sequence
    refusal   ... sequence
    pass      ... turn, shard
    pull      ... turn, shard, fraction
    hello     ... nothing more
    fence     ... nothing more
    bye       ... whether mass is handed over
    settled   ... nothing more
    news      ... length of the updates in bytes; the body is them, then what is for the layers above
    roll      ... nothing more; the body is `gossip.membership`'s
    look      ... nothing more; the body is an endpoint, a space and a key, which may be empty
    shown     ... nothing more; the body is for the layers above
    want      ... piece
    piece     ... piece, pieces, turn, dtype ("uint8" for the annex), length of the body in bytes
    enter, lack, chunk    see `gossip.wire.chunk_frames`
    proposal              see `gossip.wire.pair_frames`

Everything that arrives is hostile until shown otherwise. Lengths are checked before anything is decoded, msgpack is
given hard limits, every field is checked for its exact type and range, and values are views of the received
bytes, checked for NaN and infinity before anybody sees them. There is no pickle and no type from the wire. The header
has a checksum of its own, so that it can be believed before the values are read, and they are read once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np
import xxhash

from gossip.codecs.difference_codec import DifferenceCodec
from gossip.codecs.pair_coding import PairCoding
from gossip.codecs.trusted import trusted
from gossip.endpoint import Endpoint
from gossip.errors import Reason, Rejected, SettingsError
from gossip.keys import valid_key
from gossip.values.blocks import Values, inspect
from gossip.values.buffers import Buffer
from gossip.values.layout import Layout
from gossip.version import WIRE as VERSION
from gossip.wire import chunk_frames, pair_frames
from gossip.wire.messages import (
    Ack,
    Address,
    Bye,
    Chunk,
    Enter,
    Fence,
    Hello,
    Lack,
    Look,
    Message,
    News,
    Parcel,
    Pass,
    Piece,
    Proposal,
    Pull,
    Refusal,
    Roll,
    Settled,
    Shown,
    Want,
)

__all__ = ["ANNEX_BYTES", "HEADER_LIMIT", "NEWS_LIMIT", "SHOWN_LIMIT", "VERSION", "WEIGHT_LIMIT", "WireCodec"]

#: No header is longer than this.
HEADER_LIMIT = 256
_CHECKSUM = 8
#: Nobody holds this much weight honestly: the cap on what a peer accepts is far below.
WEIGHT_LIMIT = 1e6
#: No news is longer than this, nor anything else of a few words.
NEWS_LIMIT = 16 << 10
#: No picture of a swarm is longer than this.
SHOWN_LIMIT = 1 << 20
#: The annex of a state goes in pieces of this size; the last may be shorter.
ANNEX_BYTES = 1 << 20
_PIECES_LIMIT = 1 << 20
_INT_LIMIT = 2**53
(
    _PARCEL,
    _ACK,
    _REFUSAL,
    _PASS,
    _HELLO,
    _FENCE,
    _BYE,
    _NEWS,
    _WANT,
    _PIECE,
    _ROLL,
    _SETTLED,
    _LOOK,
    _SHOWN,
    _PULL,
    _ENTER,
    _LACK,
    _CHUNK,
    _PROPOSAL,
) = range(19)
_COMMON = 7
_FIELDS = {
    _PARCEL: _COMMON + 8,
    _ACK: _COMMON + 1,
    _REFUSAL: _COMMON + 1,
    _PASS: _COMMON + 2,
    _HELLO: _COMMON,
    _FENCE: _COMMON,
    _BYE: _COMMON + 1,
    _NEWS: _COMMON + 1,
    _WANT: _COMMON + 1,
    _PIECE: _COMMON + 5,
    _ROLL: _COMMON,
    _SETTLED: _COMMON,
    _LOOK: _COMMON,
    _SHOWN: _COMMON,
    _PULL: _COMMON + 3,
    _ENTER: _COMMON + 8,
    _LACK: _COMMON + 3,
    _CHUNK: _COMMON + 6,
    _PROPOSAL: _COMMON + 7,
}
_WITH_BODY = (_PARCEL, _NEWS, _PIECE, _ROLL, _LOOK, _SHOWN, _LACK, _CHUNK, _PROPOSAL)

assert sys.byteorder == "little", "values go over the wire as they are in memory, which must be little-endian"


class WireCodec:
    """Turns messages of one run, about one layout, into frames and back."""

    def __init__(self, run: str, layout: Layout, codec: str = "", differences: DifferenceCodec | None = None) -> None:
        """Make the codec of a run.

        Args:
            run: its name.
            layout: of its model.
            codec: the one of `gossip.codecs` that its parcels may come in beside the usual ones.
            differences: what differences come in, where they do.
        """
        self._differences = differences
        self._run = run
        self._codec = codec
        self._pairs = None if not codec else PairCoding.parse(codec)
        self._layout = layout
        self._dtypes = [dtype.name for dtype in layout.dtypes]

    def encode(self, message: Message) -> list[Buffer]:
        """Return the frames of a message. The values are not copied: leave them alone until acknowledged."""
        common = [
            VERSION,
            self._run,
            _KINDS[type(message)],
            message.origin.rank,
            message.origin.incarnation,
            message.destination.rank,
            message.destination.incarnation,
        ]
        if isinstance(message, Parcel):
            values = message.values.view(np.uint8).data if message.payload is None else message.payload.data
            more = [
                message.sequence,
                message.turn,
                message.shard,
                message.weight,
                message.ask,
                self._dtypes[message.shard],
                len(values),
                message.codec,
            ]
            return _sealed(common + more, values, message.seal)
        if isinstance(message, Proposal):
            assert self._pairs is not None, "only where pairs exchange some values"
            more, offer = pair_frames.encoded(message, self._layout, self._pairs)
            return _sealed(common + more, offer)
        if isinstance(message, Piece):
            values = message.values.view(np.uint8).data
            more = [message.piece, message.pieces, message.turn, message.values.dtype.name, len(values)]
            return _sealed(common + more, values)
        if isinstance(message, Enter | Lack | Chunk):
            fields, body = chunk_frames.encoded(message)
            return _sealed(common + fields, body)
        if isinstance(message, News):
            return _sealed([*common, len(message.updates)], memoryview(message.updates + message.body))
        if isinstance(message, Roll | Shown):
            return _sealed(common, memoryview(message.body))
        if isinstance(message, Look):
            return _sealed(common, memoryview(f"{message.endpoint} {message.key}".encode()))
        if isinstance(message, Bye):
            return _sealed([*common, message.hands_over])
        if isinstance(message, Want):
            return _sealed([*common, message.piece])
        if isinstance(message, Ack | Refusal):
            return _sealed([*common, message.sequence])
        if isinstance(message, Pull):
            return _sealed([*common, message.turn, message.shard, message.fraction])
        if isinstance(message, Pass):
            return _sealed([*common, message.turn, message.shard])
        return _sealed(common)

    def decode(self, frames: Sequence[Buffer]) -> Message:
        """Return the message in the frames, or raise `Rejected` with the reason. Nothing is copied."""
        header, body = _opened(frames)
        fields = _unpacked(header)
        if type(fields[0]) is not int or fields[0] != VERSION:
            raise Rejected(Reason.VERSION, f"protocol version {fields[0]!r}, ours is {VERSION}")
        # The checksum comes before any field but the version is believed: another version may seal otherwise.
        seal = _check_header(memoryview(frames[0]), header)
        kind = fields[2] if len(fields) >= _COMMON and type(fields[2]) is int else None
        if kind not in _FIELDS or len(fields) != _FIELDS[kind]:
            raise Rejected(Reason.MALFORMED, "the header does not have the fields of any message")
        # Whoever looks need not know what the run is called: that is what it looks for.
        if fields[1] != self._run and kind not in (_LOOK, _SHOWN):
            raise Rejected(Reason.RUN, f"of the run {fields[1]!r:.40}, ours is {self._run!r}")
        origin = Address(_count(fields[3], "origin"), _count(fields[4], "incarnation"))
        destination = Address(_count(fields[5], "destination"), _count(fields[6], "incarnation"))
        if body is not None and kind not in _WITH_BODY:
            raise Rejected(Reason.MALFORMED, "values behind a message that has none", origin.rank)
        if kind in _BARE:
            return _BARE[kind](origin, destination)
        if kind == _NEWS:
            words, length = _words(origin.rank, body, seal), _count(fields[7], "length", origin.rank)
            if length > len(words):
                raise Rejected(Reason.TRUNCATED, f"{len(words)} of {length} bytes of updates", origin.rank)
            return News(origin, destination, words[length:], words[:length])
        if kind == _ROLL:
            return Roll(origin, destination, _words(origin.rank, body, seal))
        if kind == _LOOK:
            return _look(origin, destination, _words(origin.rank, body, seal))
        if kind == _SHOWN:
            return Shown(origin, destination, _words(origin.rank, body, seal, SHOWN_LIMIT))
        if kind == _BYE:
            if type(fields[7]) is not bool:
                raise Rejected(Reason.MALFORMED, f"a goodbye that says {fields[7]!r:.40}", origin.rank)
            return Bye(origin, destination, fields[7])
        if kind == _WANT:
            return Want(origin, destination, _count(fields[7], "piece", origin.rank))
        if kind == _PIECE:
            return self._piece(origin, destination, fields[_COMMON:], body, seal)
        if kind == _PROPOSAL:
            more = fields[_COMMON:], body, seal, self._layout, self._pairs, WEIGHT_LIMIT
            return pair_frames.decoded(origin, destination, *more)
        if kind == _PULL:
            turn, shard = _count(fields[7], "turn", origin.rank), self._shard(fields[8], origin.rank)
            if type(fields[9]) is not float or not 0 < fields[9] < 1:
                raise Rejected(Reason.MALFORMED, f"wants {fields[9]!r:.40} of our mass", origin.rank)
            return Pull(origin, destination, turn, shard, fields[9])
        if kind == _ENTER:
            return chunk_frames.decoded_enter(origin, destination, fields[_COMMON:])
        if kind == _LACK:
            return chunk_frames.decoded_lack(origin, destination, fields[_COMMON:], _words(origin.rank, body, seal))
        if kind == _CHUNK:
            chunk = chunk_frames.decoded_chunk(origin, destination, fields[_COMMON:], body)
            _check_seal(xxhash.xxh3_64_intdigest(chunk.values.data), seal, origin.rank)
            return chunk
        if kind == _PASS:
            turn, shard = _count(fields[7], "turn", origin.rank), self._shard(fields[8], origin.rank)
            return Pass(origin, destination, turn, shard)
        sequence = _count(fields[7], "sequence", origin.rank)
        if kind == _ACK:
            return Ack(origin, destination, sequence)
        if kind == _REFUSAL:
            return Refusal(origin, destination, sequence)
        _, turn, shard, weight, ask, dtype, length, codec = fields[_COMMON:]
        if codec == "":
            values = self._values(origin.rank, shard, dtype, length, body, seal)
        else:
            values = self._decoded(origin.rank, shard, dtype, length, codec, body, seal)
        moves = self._pairs is not None and codec == self._pairs.spelled
        differs = self._tells_differences(codec)
        if type(weight) is not float or not (weight == 0 if moves or differs else 0 < weight <= WEIGHT_LIMIT):
            raise Rejected(Reason.WEIGHT, f"a weight of {weight!r:.40}", origin.rank)
        if type(ask) is not float or not (ask == 0 if moves else 0 <= ask < 1) or (differs and not ask):
            raise Rejected(Reason.MALFORMED, f"asks for {ask!r:.40} of our mass", origin.rank)
        return Parcel(
            origin,
            destination,
            sequence,
            _count(turn, "turn", origin.rank),
            shard,
            weight,
            values,
            ask,
        )

    def _piece(
        self, origin: Address, destination: Address, fields: list[Any], body: memoryview | None, seal: int
    ) -> Piece:
        piece, pieces, turn, dtype, length = fields
        _count(turn, "turn", origin.rank)
        if _count(pieces, "pieces", origin.rank) > _PIECES_LIMIT or _count(piece, "piece", origin.rank) >= pieces:
            raise Rejected(Reason.SHAPE, f"piece {piece} of {pieces}", origin.rank)
        if pieces < self._layout.shards:
            raise Rejected(Reason.SHAPE, f"{pieces} pieces; we have {self._layout.shards} shards", origin.rank)
        if piece < self._layout.shards:
            values = self._values(origin.rank, piece, dtype, length, body, seal)
        else:
            if dtype != "uint8" or body is None or not len(body) == length <= ANNEX_BYTES:
                raise Rejected(Reason.SHAPE, f"piece {piece} is not a part of an annex", origin.rank)
            _check_seal(xxhash.xxh3_64_intdigest(body), seal, origin.rank)
            values = np.frombuffer(body, dtype=np.uint8)
        return Piece(origin, destination, piece, pieces, turn, values)

    def _tells_differences(self, codec: Any) -> bool:
        return self._differences is not None and codec == self._differences.spelled

    def _shard(self, shard: Any, origin: int) -> int:
        if type(shard) is not int or not 0 <= shard < self._layout.shards:
            raise Rejected(Reason.SHAPE, f"shard {shard!r:.40} of {self._layout.shards}", origin)
        return shard

    def _decoded(
        self, origin: int, shard: Any, dtype: Any, length: Any, codec: Any, body: memoryview | None, seal: int
    ) -> Values:
        """Return the values of a compressed parcel; nothing is allocated before all that it claims is checked."""
        shard = self._shard(shard, origin)
        found = trusted(codec, self._codec) if isinstance(codec, str) else None
        if self._tells_differences(codec):
            found = self._differences
        if found is None or dtype != self._dtypes[shard]:
            raise Rejected(Reason.DTYPE, f"values of {dtype!r:.40} as {codec!r:.60}", origin)
        start, stop = self._layout.bounds[shard]
        expected = found.size(stop - start, self._layout.dtypes[shard])
        if body is None or type(length) is not int or length != len(body) or length > expected:
            raise Rejected(Reason.SHAPE, f"shard {shard} as {codec} has {expected} bytes, not {length!r:.40}", origin)
        _check_seal(xxhash.xxh3_64_intdigest(body), seal, origin)
        try:
            return found.decode(body, stop - start, self._layout.dtypes[shard])
        except Rejected as error:
            raise Rejected(error.reason, error.detail, origin) from None

    def _values(self, origin: int, shard: Any, dtype: Any, length: Any, body: memoryview | None, seal: int) -> Values:
        shard = self._shard(shard, origin)
        if dtype != self._dtypes[shard]:
            raise Rejected(Reason.DTYPE, f"values of {dtype!r:.40}, ours are {self._dtypes[shard]}", origin)
        expected = self._layout.nbytes(shard)
        if type(length) is not int or length != expected:
            raise Rejected(Reason.SHAPE, f"shard {shard} has {expected} bytes, not {length!r:.40}", origin)
        if body is None or len(body) < length:
            raise Rejected(Reason.TRUNCATED, f"{0 if body is None else len(body)} of {length} bytes", origin)
        if len(body) > length:
            raise Rejected(Reason.OVERSIZED, f"{len(body)} bytes instead of {length}", origin)
        values: Values = np.frombuffer(body, dtype=self._layout.dtypes[shard])
        found, finite = inspect(values)
        _check_seal(found, seal, origin)
        if not finite:
            raise Rejected(Reason.NOT_FINITE, f"NaN or infinity in shard {shard}", origin)
        return values


_KINDS: dict[type, int] = {
    Parcel: _PARCEL,
    Ack: _ACK,
    Refusal: _REFUSAL,
    Pass: _PASS,
    Hello: _HELLO,
    Fence: _FENCE,
    Bye: _BYE,
    News: _NEWS,
    Want: _WANT,
    Piece: _PIECE,
    Roll: _ROLL,
    Settled: _SETTLED,
    Look: _LOOK,
    Shown: _SHOWN,
    Pull: _PULL,
    Enter: _ENTER,
    Lack: _LACK,
    Chunk: _CHUNK,
    Proposal: _PROPOSAL,
}
_BARE: dict[int, type[Hello] | type[Fence] | type[Settled]] = {
    _HELLO: Hello,
    _FENCE: Fence,
    _SETTLED: Settled,
}


def _sealed(fields: list[Any], body: memoryview | None = None, seal: int | None = None) -> list[Buffer]:
    header: bytes = msgpack.packb(fields)
    if body is None:
        return [header + xxhash.xxh3_64_digest(header)]
    header += (xxhash.xxh3_64_intdigest(body) if seal is None else seal).to_bytes(_CHECKSUM, "big")
    return [header + xxhash.xxh3_64_digest(header), body]


def _opened(frames: Sequence[Buffer]) -> tuple[memoryview, memoryview | None]:
    if not 1 <= len(frames) <= 2:
        raise Rejected(Reason.MALFORMED, f"{len(frames)} frames, where a message has one or two")
    first = memoryview(frames[0])
    if len(first) > HEADER_LIMIT:
        raise Rejected(Reason.OVERSIZED, f"a header of {len(first)} bytes; the limit is {HEADER_LIMIT}")
    if len(first) <= _CHECKSUM * len(frames):
        raise Rejected(Reason.TRUNCATED, f"a header of {len(first)} bytes")
    return first[: -_CHECKSUM * len(frames)], memoryview(frames[1]) if len(frames) == 2 else None


def _unpacked(header: memoryview) -> list[Any]:
    try:
        fields = msgpack.unpackb(
            header,
            use_list=True,
            max_array_len=32,
            max_str_len=HEADER_LIMIT,
            max_bin_len=0,
            max_map_len=0,
            max_ext_len=0,
        )
    # msgpack raises several unrelated kinds for bad input; every one of them means the same here.
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise Rejected(Reason.MALFORMED, f"the header is not msgpack: {error!r:.80}") from None
    if not isinstance(fields, list) or not fields:
        raise Rejected(Reason.MALFORMED, "the header is not a list of fields")
    return fields


def _check_header(frame: memoryview, header: memoryview) -> int:
    """Return the checksum of the body, if there is one, as the header has it."""
    if xxhash.xxh3_64_digest(frame[:-_CHECKSUM]) != frame[-_CHECKSUM:]:
        raise Rejected(Reason.CHECKSUM, "the checksum does not fit the header")
    return int.from_bytes(frame[len(header) : -_CHECKSUM], "big")


def _check_seal(found: int, expected: int, origin: int) -> None:
    if found != expected:
        raise Rejected(Reason.CHECKSUM, "the checksum does not fit the bytes", origin)


def _words(origin: int, body: memoryview | None, seal: int, limit: int = NEWS_LIMIT) -> bytes:
    if body is None:
        raise Rejected(Reason.TRUNCATED, "words without a body", origin)
    if len(body) > limit:
        raise Rejected(Reason.OVERSIZED, f"words of {len(body)} bytes; the limit is {limit}", origin)
    _check_seal(xxhash.xxh3_64_intdigest(body), seal, origin)
    return bytes(body)


def _look(origin: Address, destination: Address, words: bytes) -> Look:
    try:
        endpoint, key = words.decode("ascii").split(" ")
        Endpoint.parse(endpoint)
        if key and not valid_key(key.encode()):
            raise ValueError("not a key")
    except (ValueError, SettingsError):
        raise Rejected(Reason.MALFORMED, f"a look from {words!r:.80}, which is no place", origin.rank) from None
    return Look(origin, destination, endpoint, key)


def _count(value: Any, what: str, origin: int | None = None) -> int:
    if type(value) is not int or not 0 <= value < _INT_LIMIT:
        raise Rejected(Reason.MALFORMED, f"{what} is {value!r:.40}", origin)
    return value
