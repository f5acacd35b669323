"""The bodies of messages: what a kind of message needs to write its body, and to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import xxhash

from gossip.codecs.difference_codec import DifferenceCodec
from gossip.codecs.pair_coding import PairCoding
from gossip.errors import Reason, Rejected
from gossip.values.layout import Layout
from gossip.wire.fields import Field
from gossip.wire.messages import Address

__all__ = ["Arrival", "Body", "RunContext", "Written"]

M = TypeVar("M")

#: A body to be sent, the values of the fields that describe it, and its checksum where that is known.
Written = tuple[memoryview, tuple[Any, ...], int | None]


class RunContext:
    """What all peers of a run know beforehand. Bodies say none of it again, or are checked against it."""

    def __init__(self, layout: Layout, codec: str, differences: DifferenceCodec | None) -> None:
        self.layout = layout
        #: The names of the types of the shards' values.
        self.dtypes = [dtype.name for dtype in layout.dtypes]
        #: The run's own codec, which its parcels may come in beside the usual ones.
        self.codec = codec
        #: How pairs exchange some values of a shard, where they do.
        self.pairs = PairCoding.parse(codec) if codec else None
        #: How differences are told, where they are.
        self.differences = differences


class Arrival(NamedTuple):
    """A message whose header has been checked, field by field, and whose body has not."""

    kind: str
    origin: Address
    destination: Address
    #: Those of the kind, then those that describe the body.
    fields: list[Any]
    body: memoryview | None
    #: The checksum of the body, as the header has it.
    seal: int
    context: RunContext

    def rejected(self, reason: Reason, detail: str) -> Rejected:
        """Return the error for a message that must not be believed."""
        return Rejected(reason, f"{self.kind}: {detail}", self.origin.rank)

    def check_seal(self, found: int) -> None:
        """Reject the message unless this is the checksum that its header has."""
        if found != self.seal:
            raise self.rejected(Reason.CHECKSUM, "the checksum in the header is not that of the body")

    def whole(self, limit: int) -> bytes:
        """Return a body of any length up to a limit, its checksum checked."""
        if self.body is None:
            raise self.rejected(Reason.TRUNCATED, "the body is missing")
        if len(self.body) > limit:
            raise self.rejected(Reason.OVERSIZED, f"the body has {len(self.body)} bytes; the limit is {limit}")
        self.check_seal(xxhash.xxh3_64_intdigest(self.body))
        return bytes(self.body)


@dataclass(frozen=True)
class Body(Generic[M]):
    """How messages of one kind carry a body."""

    #: What the body is, for the documents.
    about: str
    write: Callable[[M, RunContext], Written]
    #: Returns the message, or raises `Rejected`.
    read: Callable[[Arrival], M]
    #: The fields of the header that describe the body. They follow the message's own.
    fields: tuple[Field, ...] = ()
    #: The names of those that follow these. Their check needs other fields or the body, so `read` checks them.
    checked_in_read: tuple[str, ...] = ()
