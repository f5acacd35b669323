"""The kinds of bodies: one row for each, which is all that the codec knows of it.

A new kind is a dataclass in `gossip.membership.bodies`, a row here and a handler. The fields of a row are those of the
dataclass, in its order, which is their order on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gossip.errors import Reason, Rejected
from gossip.membership.bodies import (
    BUCKETS,
    Behind,
    Digest,
    Errand,
    Holdings,
    JoinRequest,
    MemberNews,
    Nack,
    Ping,
    ProbeAck,
    Said,
    Taken,
    Welcome,
)
from gossip.membership.record import ENDPOINT_LIMIT, LIFE_LIMIT, RANK_LIMIT
from gossip.wire.fields import Field, count, flag

__all__ = ["BODY_KINDS", "DIGEST_BYTES", "REASON_LIMIT", "BodyKind", "Sized"]

DIGEST_BYTES = 8 * BUCKETS
REASON_LIMIT = 400
_KEY_LIMIT = 40


@dataclass(frozen=True)
class Sized:
    """A field that is text or bytes, of a length within a range."""

    name: str
    exact: type[Any]
    least: int
    most: int

    def fits(self, value: Any) -> bool:
        """Whether the field may have this value."""
        return type(value) is self.exact and self.least <= len(value) <= self.most

    def rejected(self, kind: str, value: Any, origin: int | None) -> Rejected:
        """Return the error for a value that does not fit, in a body of this kind from this rank."""
        unit = "bytes" if self.exact is bytes else "characters of text"
        length = f"{self.most} {unit}" if self.least == self.most else f"{self.least} to {self.most} {unit}"
        if type(value) is self.exact and len(value) < self.least:
            return Rejected(Reason.TRUNCATED, f"{kind}: {self.name} must be {length}, not {len(value)}", origin)
        return Rejected(Reason.MALFORMED, f"{kind}: {self.name} must be {length}, not {value!r:.40}", origin)


@dataclass(frozen=True)
class BodyKind:
    """A kind of body."""

    #: What it is called on the wire.
    number: int
    said: type[Said]
    fields: tuple[Field | Sized, ...] = ()

    @property
    def name(self) -> str:
        """What texts call it: some messages of the wire have the same names."""
        return f"membership {self.said.__name__}"


_SEQUENCE, _INCARNATION = count("sequence", LIFE_LIMIT), count("incarnation", LIFE_LIMIT)
BODY_KINDS = (
    BodyKind(0, Ping, (_SEQUENCE,)),
    BodyKind(1, ProbeAck, (_SEQUENCE,)),
    BodyKind(2, Nack, (_SEQUENCE,)),
    BodyKind(3, Errand, (_SEQUENCE, count("target", RANK_LIMIT))),
    BodyKind(4, MemberNews),
    BodyKind(5, Digest, (Sized("sums", bytes, DIGEST_BYTES, DIGEST_BYTES), flag("answer"))),
    BodyKind(6, Holdings),
    BodyKind(7, JoinRequest, (Sized("endpoint", str, 0, ENDPOINT_LIMIT), Sized("key", str, 0, _KEY_LIMIT))),
    BodyKind(8, Welcome, (_INCARNATION,)),
    BodyKind(9, Behind, (_INCARNATION,)),
    BodyKind(10, Taken, (Sized("reason", str, 0, REASON_LIMIT),)),
)
