"""The events and effects of membership.

`Membership.handle(event, now)` takes an event and the time, and returns effects in the order in which the caller has to
carry them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossip.membership.record import Record

__all__ = [
    "AskIn",
    "BodyReceived",
    "Effect",
    "Event",
    "JoinRefused",
    "Joined",
    "LifeOver",
    "LifeSign",
    "MemberLeave",
    "MemberTick",
    "NextLife",
    "ReportSlow",
    "SendBody",
    "StateChanged",
]


@dataclass(frozen=True)
class BodyReceived:
    """A body of membership arrived from a rank; it has not been checked yet."""

    origin: int
    body: bytes


@dataclass(frozen=True)
class MemberTick:
    """Time has passed: the `deadline` is due."""


@dataclass(frozen=True)
class LifeSign:
    """Some message came from a member in this life: it is alive."""

    rank: int
    incarnation: int


@dataclass(frozen=True)
class ReportSlow:
    """The layer above, which measures lateness, finds that a member is slow, or no longer slow."""

    rank: int
    slow: bool = True


@dataclass(frozen=True)
class AskIn:
    """This peer is new and knows these members; the first that answers admits it."""

    contacts: Sequence[Record]


@dataclass(frozen=True)
class MemberLeave:
    """This peer leaves: tell as many members as possible at once."""


@dataclass(frozen=True)
class NextLife:
    """The core has started a new life."""

    incarnation: int


Event = BodyReceived | MemberTick | LifeSign | ReportSlow | AskIn | MemberLeave | NextLife


@dataclass(frozen=True)
class SendBody:
    """Send the body to a rank. It may be lost, duplicated or late, without any report."""

    rank: int
    body: bytes
    #: The endpoint and key of the receiver, if they differ from those of the rank: an answer to a newcomer, whose rank
    #: may belong to another process.
    endpoint: str = ""
    key: str = ""


@dataclass(frozen=True)
class StateChanged:
    """The new record of a member: it joined, died, left, started a new life, moved, became slow or normal again."""

    record: Record
    before: Record | None


@dataclass(frozen=True)
class LifeOver:
    """Others have declared this life of this peer, and all before, dead: start a later one and report it."""

    incarnation: int


@dataclass(frozen=True)
class JoinRefused:
    """This peer cannot be a member: another process has its rank. The reason says what to do."""

    reason: str


@dataclass(frozen=True)
class Joined:
    """A member has admitted this peer and has sent its table."""


Effect = SendBody | StateChanged | LifeOver | JoinRefused | Joined
