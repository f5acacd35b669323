"""Who takes part, what each of them has, and therefore what each of them has to do first.

A member has a *seat*: whether it takes part, and its *stint*, which counts how often that has changed. All seats of
a view together are a group, and its digest is its name. Neither lives nor stints ever go back, so no group comes back
either: whoever has gone on from one never works for it again. That is what the safety of a reduction rests on.

A group is *formed* here when every member, those who only look on included, has said where it stands in this very
group. From these words everybody concludes the same, without another one:

- a *veteran* has a state that is the group's, at the round that it comes to next. If nobody is one, because the run
  begins, whoever has come furthest is (of equals the lowest rank), and the state that it has is the group's;
- the round of the group is the highest of the veterans';
- a veteran that is one round behind takes that round's result from one that is not and has it, and makes its step;
- everybody else who is behind, or no veteran, takes over the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import xxhash

from gossip.wire.messages import Address, Enter

__all__ = ["Group", "Seat", "Seats", "Stand", "Verdict"]


class Seat(NamedTuple):
    """Whether a member takes part, in which life, and how often it has begun or ceased to."""

    life: int
    stint: int
    active: bool


class Stand(NamedTuple):
    """Where a member stands: see `Enter`."""

    round: int
    veteran: bool
    keeps: bool
    seal: int


class Seats:
    """The seats of everybody. Whoever has said nothing has the usual one: founders take part, newcomers do not yet."""

    def __init__(self) -> None:
        self._seats: dict[int, Seat] = {}

    def of(self, rank: int, life: int) -> Seat:
        """Return the seat of a member."""
        seat = self._seats.get(rank)
        return seat if seat is not None and seat.life == life else Seat(life, 0, life == 0)

    def learn(self, rank: int, seat: Seat) -> bool:
        """Take in what a member says of its seat; return whether that is not older than what it has said before."""
        known = self.of(rank, seat.life)
        before = self._seats.get(rank)
        if (before is not None and before.life > seat.life) or known.stint > seat.stint:
            return False
        self._seats[rank] = seat
        return True


class Verdict(NamedTuple):
    """What follows from where all stand."""

    #: The round of the group, and who is there.
    round: int
    current: frozenset[int]
    #: Who gives its state to those who lack it, and who the result of the last round, if anybody can.
    source: int
    keeper: int | None


class Group:
    """One group, as one of its members sees it come together."""

    def __init__(self, me: Address, members: Mapping[int, int], seats: Seats) -> None:
        found = [(rank, seats.of(rank, life)) for rank, life in members.items()]
        text = repr([(rank, *seat) for rank, seat in found])
        #: 53 bits, for the wire.
        self.digest = xxhash.xxh3_64_intdigest(text.encode()) >> 11
        self.me = me
        self.members = {rank: Address(rank, life) for rank, life in members.items()}
        #: Who takes part, by place.
        self.places = [rank for rank, seat in found if seat.active]
        self.stands: dict[int, Stand] = {}

    @property
    def active(self) -> bool:
        """Whether this peer takes part."""
        return self.me.rank in self.places

    @property
    def formed(self) -> bool:
        """Whether everybody has said where it stands."""
        return len(self.stands) == len(self.members)

    @property
    def silent(self) -> list[Address]:
        """Return those who have not."""
        return [address for rank, address in self.members.items() if rank not in self.stands]

    def hear(self, message: Enter) -> None:
        """Take in where a member stands, if it speaks of this group."""
        if message.digest == self.digest and self.members.get(message.origin.rank) == message.origin:
            stand = Stand(message.round, message.veteran, message.keeps, message.seal)
            self.stands.setdefault(message.origin.rank, stand)

    def verdict(self) -> Verdict | None:
        """Return what follows once it is formed; None if nobody takes part."""
        veterans = {rank: stand for rank, stand in self.stands.items() if stand.veteran}
        if not veterans:
            if not self.places:
                return None
            first = max(self.places, key=lambda rank: (self.stands[rank].round, -rank))
            veterans = {first: self.stands[first]}
        number = max(stand.round for stand in veterans.values())
        current = frozenset(rank for rank, stand in veterans.items() if stand.round == number)
        in_order = sorted(current, key=lambda rank: (rank not in self.places, rank))
        keepers = [rank for rank in in_order if self.stands[rank].keeps]
        return Verdict(number, current, in_order[0], keepers[0] if keepers else None)
