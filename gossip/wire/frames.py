"""Messages as bytes: a msgpack header in one frame, the body of those that have one in a second.

    frame 0   header (msgpack array), then 8 bytes where there is a body: its xxh3 checksum, then 8 bytes: the xxh3
              checksum of all before
    frame 1   the body; absent where the kind of message has none

    header    [version, run, number of the kind, origin rank, origin incarnation, destination rank,
               destination incarnation, ... then by kind]

`gossip.wire.kinds` has a row for each kind of message: its number, its fields and its body.

Everything that arrives is hostile until it has been checked. Lengths are checked before anything is decoded, msgpack is
given hard limits, every field is checked for its exact type and range, and values are views of the received
bytes, checked for NaN and infinity before anybody sees them. There is no pickle and no type from the wire. The header
has a checksum of its own, so that it can be believed before the values are read, and they are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import xxhash

from gossip.codecs.difference_codec import DifferenceCodec
from gossip.errors import Reason, Rejected
from gossip.values.buffers import Buffer
from gossip.values.layout import Layout
from gossip.version import WIRE as VERSION
from gossip.wire.body import Arrival, RunContext
from gossip.wire.kinds import ADDRESSES, BEFORE, BY_CLASS, KINDS, Kind
from gossip.wire.limits import HEADER_LIMIT
from gossip.wire.messages import Address, Message

__all__ = ["VERSION", "WireCodec"]

_CHECKSUM = 8
_COMMON = BEFORE + len(ADDRESSES)


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
        self._run = run
        self._context = RunContext(layout, codec, differences)
        self._kinds = {kind.number: kind.within(layout) for kind in KINDS}
        #: Kept, since `msgpack.packb` would make a packer for each message.
        self._pack: Callable[[tuple[Any, ...]], bytes] = msgpack.Packer().pack

    def encode(self, message: Message) -> list[Buffer]:
        """Return the frames of a message. The values are not copied: leave them alone until acknowledged."""
        kind = BY_CLASS[type(message)]
        header = (VERSION, self._run, kind.number, *kind.values(message))
        if kind.body is None:
            packed = self._pack(header)
            return [packed + xxhash.xxh3_64_digest(packed)]
        body, described, seal = kind.body.write(message, self._context)
        if seal is None:
            seal = xxhash.xxh3_64_intdigest(body)
        packed = self._pack(header + described) + seal.to_bytes(_CHECKSUM, "big")
        return [packed + xxhash.xxh3_64_digest(packed), body]

    def decode(self, frames: Sequence[Buffer]) -> Message:
        """Return the message in the frames, or raise `Rejected` with the reason. Nothing is copied."""
        header, body, seal = _opened(frames)
        kind = self._kind(header)
        if header[1] != self._run and not kind.any_run:
            raise Rejected(Reason.RUN, f"{kind.name}: the run must be {self._run!r}, not {header[1]!r:.40}")
        for (exact, least, most), value in zip(kind.ranges, header[BEFORE:], strict=False):
            if type(value) is not exact or not least <= value <= most:
                raise kind.rejected(header)
        origin, destination = Address(header[3], header[4]), Address(header[5], header[6])
        message: Message
        if kind.body is not None:
            arrival = Arrival(kind.name, origin, destination, header[_COMMON:], body, seal, self._context)
            message = kind.body.read(arrival)
        elif body is None:
            message = kind.message(origin, destination, *header[_COMMON:])
        else:
            raise Rejected(
                Reason.MALFORMED,
                f"{kind.name}: the message must have no body, but has one of {len(body)} bytes",
                origin.rank,
            )
        return message

    def _kind(self, header: list[Any]) -> Kind[Any]:
        """Return the kind of the message that has this header."""
        if len(header) < _COMMON:
            raise Rejected(Reason.MALFORMED, f"the header must have at least {_COMMON} fields, not {len(header)}")
        number = header[2]
        kind = self._kinds.get(number) if type(number) is int else None
        if kind is None:
            last = len(KINDS) - 1
            raise Rejected(Reason.MALFORMED, f"the kind must be a whole number from 0 to {last}, not {number!r:.40}")
        if len(header) != kind.length:
            raise Rejected(
                Reason.MALFORMED, f"{kind.name}: the header must have {kind.length} fields, not {len(header)}"
            )
        return kind


def _opened(frames: Sequence[Buffer]) -> tuple[list[Any], memoryview | None, int]:
    """Return the header, the body if there is one, and the checksum that the body should have."""
    if not 1 <= len(frames) <= 2:
        raise Rejected(Reason.MALFORMED, f"a message must have one or two frames, not {len(frames)}")
    frame = memoryview(frames[0])
    if len(frame) > HEADER_LIMIT:
        raise Rejected(Reason.OVERSIZED, f"the header has {len(frame)} bytes; the limit is {HEADER_LIMIT}")
    end = len(frame) - _CHECKSUM * len(frames)
    if end <= 0:
        raise Rejected(Reason.TRUNCATED, f"the header must have more than the {len(frame)} bytes of its checksums")
    header = _unpacked(frame[:end])
    # The version is the only field that is believed before the checksum: another version may seal otherwise.
    if type(header[0]) is not int or header[0] != VERSION:
        raise Rejected(Reason.VERSION, f"the version of the protocol must be {VERSION}, not {header[0]!r:.40}")
    if xxhash.xxh3_64_digest(frame[:-_CHECKSUM]) != frame[-_CHECKSUM:]:
        raise Rejected(Reason.CHECKSUM, f"the checksum of the header is not that of its {end} bytes")
    if len(frames) == 1:
        return header, None, 0
    return header, memoryview(frames[1]), int.from_bytes(frame[end:-_CHECKSUM], "big")


def _unpacked(packed: memoryview) -> list[Any]:
    try:
        header = msgpack.unpackb(
            packed,
            use_list=True,
            max_array_len=32,
            max_str_len=HEADER_LIMIT,
            max_bin_len=0,
            max_map_len=0,
            max_ext_len=0,
        )
    # msgpack raises several unrelated kinds for bad input; every one of them means the same here.
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise Rejected(Reason.MALFORMED, f"the header must be msgpack: {error!r:.80}") from None
    if type(header) is not list or not header:
        raise Rejected(Reason.MALFORMED, f"the header must be an array of fields, not {header!r:.40}")
    return header
