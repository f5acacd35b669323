"""The messages between peers about which of them are alive.

- `Ping`: are you alive? `ProbeAck`: I am.
- `Errand`: I get no answer from the target, please ping it. `Nack`: I get none either. A nack shows the asker that it
  can still receive.
- `MemberNews`: only updates.
- `Digest`: the state of my table in 64 numbers. A receiver with other records answers with that part of its own table,
  as `Holdings`, and once with its own digest, so that it gets the records that it lacks.
- `JoinRequest`: admit me. `Welcome`: you are admitted; compare tables with me. `Behind`: this life of your rank is used
  up, ask again with a later one. `Taken`: another process has this rank, and it answers.

Each comes in an `Envelope`: the sender's own life and refutations, and as many updates as fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossip.membership.record import Record

__all__ = [
    "BUCKETS",
    "Behind",
    "Digest",
    "Envelope",
    "Errand",
    "Holdings",
    "JoinRequest",
    "MemberNews",
    "Nack",
    "Ping",
    "ProbeAck",
    "Said",
    "Taken",
    "Update",
    "Welcome",
]

#: The number of parts in which tables are compared, by rank: a change costs the transfer of 1/64 of a table.
BUCKETS = 64


@dataclass(frozen=True)
class Update:
    """A statement about a member and, if it is a suspect, the ranks that got no answer from it."""

    record: Record
    accusers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ping:
    """Are you alive?"""

    sequence: int


@dataclass(frozen=True)
class ProbeAck:
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
class MemberNews:
    """Updates, and nothing else."""


@dataclass(frozen=True)
class Digest:
    """The sums of the marks of all records, by rank modulo `BUCKETS`, as 8 bytes each."""

    sums: bytes
    #: Whether this digest answers another one. Then it is not answered with a digest.
    answer: bool


@dataclass(frozen=True)
class Holdings:
    """The updates are the sender's records in the parts of the table that differ."""


@dataclass(frozen=True)
class JoinRequest:
    """A newcomer's request to be admitted, with its endpoint and key."""

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
    """The newcomer's rank belongs to a process that is alive."""

    reason: str


Said = Ping | ProbeAck | Nack | Errand | MemberNews | Digest | Holdings | JoinRequest | Welcome | Behind | Taken


@dataclass(frozen=True)
class Envelope:
    """A message of a peer in one of its lives."""

    incarnation: int
    refutations: int
    said: Said
    updates: tuple[Update, ...] = ()
