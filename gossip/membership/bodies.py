"""What peers say to each other about who is alive.

- `Ping`: are you alive? `Ack`: I am.
- `Errand`: I get no answer from the target, please try. `Nack`: nor do I; it tells that the asker itself can hear.
- `News`: nothing but updates.
- `Digest`: the state of my table in 64 numbers; whoever holds something else answers with that part of its own, as
  `Holdings`, and once with its own digest, so that it is told what it lacks in turn.
- `Ask`: let me in. `Welcome`: you are in; compare tables with me. `Behind`: this rank has been through that life, come
  back with a later one. `Taken`: another process bears this rank, and it answers.

Each comes in an `Envelope`: the sender's own life and refutations, and as many updates as fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossip.membership.record import Record

__all__ = [
    "BUCKETS",
    "Ack",
    "Ask",
    "Behind",
    "Digest",
    "Envelope",
    "Errand",
    "Holdings",
    "Nack",
    "News",
    "Ping",
    "Said",
    "Taken",
    "Update",
    "Welcome",
]

#: Tables are compared in so many parts, by rank: a change costs the transfer of 1/64 of a table, not of all.
BUCKETS = 64


@dataclass(frozen=True)
class Update:
    """A statement about a member and, if it is a suspect, who found it silent."""

    record: Record
    accusers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ping:
    """Are you alive?"""

    sequence: int


@dataclass(frozen=True)
class Ack:
    """I am, or the target of your errand is."""

    sequence: int


@dataclass(frozen=True)
class Nack:
    """The target of your errand did not answer me yet."""

    sequence: int


@dataclass(frozen=True)
class Errand:
    """Please ping the target for me."""

    sequence: int
    target: int


@dataclass(frozen=True)
class News:
    """Updates, and nothing else."""


@dataclass(frozen=True)
class Digest:
    """The sums of the marks of all records, by rank modulo `BUCKETS`, as 8 bytes each."""

    sums: bytes
    #: Whether this answers a digest, and so is not answered by another.
    answer: bool


@dataclass(frozen=True)
class Holdings:
    """The updates are what the sender holds in parts of the table that differ."""


@dataclass(frozen=True)
class Ask:
    """A newcomer's request: it is to be reached there, and has this key."""

    endpoint: str
    key: str


@dataclass(frozen=True)
class Welcome:
    """The newcomer is a member in this life."""

    incarnation: int


@dataclass(frozen=True)
class Behind:
    """This life of the newcomer's rank, and all before, are used up."""

    incarnation: int


@dataclass(frozen=True)
class Taken:
    """The newcomer's rank belongs to somebody who lives."""

    reason: str


Said = Ping | Ack | Nack | Errand | News | Digest | Holdings | Ask | Welcome | Behind | Taken


@dataclass(frozen=True)
class Envelope:
    """Something said by a peer in one of its lives."""

    incarnation: int
    refutations: int
    said: Said
    updates: tuple[Update, ...] = ()
