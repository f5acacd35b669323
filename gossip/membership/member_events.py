"""What goes into membership and what comes out.

Events go in with the time, `Membership.handle(event, now)`, and effects come out, in the order in which they are to be
carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossip.membership.record import Record

__all__ = [
    "Effect",
    "Event",
    "Heard",
    "Join",
    "Joined",
    "Leave",
    "LifeOver",
    "Received",
    "Refused",
    "Reincarnated",
    "ReportSlow",
    "Send",
    "StateChanged",
    "Tick",
]


@dataclass(frozen=True)
class Received:
    """A body of membership arrived from a rank; nothing is known about it yet."""

    origin: int
    body: bytes


@dataclass(frozen=True)
class Tick:
    """Time has passed: the `deadline` is due."""


@dataclass(frozen=True)
class Heard:
    """Anything at all came from a member in this life: it is alive."""

    rank: int
    incarnation: int


@dataclass(frozen=True)
class ReportSlow:
    """The layer above, which knows lateness, finds a member slow, or no longer so."""

    rank: int
    slow: bool = True


@dataclass(frozen=True)
class Join:
    """This peer is new, and these are members that it has heard of; the first that answers lets it in."""

    contacts: Sequence[Record]


@dataclass(frozen=True)
class Leave:
    """This peer goes: tell as many as can be told at once."""


@dataclass(frozen=True)
class Reincarnated:
    """The core has taken a new life."""

    incarnation: int


Event = Received | Tick | Heard | ReportSlow | Join | Leave | Reincarnated


@dataclass(frozen=True)
class Send:
    """Send the body to a rank. It may be lost, doubled or late; nobody has to say so."""

    rank: int
    body: bytes
    #: Where to, and with whose key, if that is not where the rank is known to be: an answer to a newcomer, whose rank
    #: may be another's.
    endpoint: str = ""
    key: str = ""


@dataclass(frozen=True)
class StateChanged:
    """A member is now seen like this: it joined, died, left, took a new life, moved, is slow or no longer so."""

    record: Record
    before: Record | None


@dataclass(frozen=True)
class LifeOver:
    """Others hold this life of ours, and all before, for over: go on in a later one and say so (`Reincarnated`)."""

    incarnation: int


@dataclass(frozen=True)
class Refused:
    """This peer cannot be a member: another process has its rank. Stop, or take another rank; the reason says which."""

    reason: str


@dataclass(frozen=True)
class Joined:
    """A member let us in, and we know whom it knows."""


Effect = Send | StateChanged | LifeOver | Refused | Joined
