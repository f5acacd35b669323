"""A group: the members that take part in collective exchanges, the state of each, and what each has to do first.

A member has a *seat*: whether it takes part, and its *stint*, which counts how often that has changed. All seats of a
view together are a group, and its digest is its name. Lives and stints only increase, so no group occurs twice: a
member that has moved on from a group never works for it again. The safety of a reduction depends on that.

A group is *formed* here when every member, including those that only look on, has said where it stands in this group.
From these messages all members draw the same conclusions, without further messages:

- A *veteran* has the state of the group, at the round that it comes to next. If there is no veteran, because the run
  begins, the member that has come furthest is one (of equals the lowest rank), and its state is the state of the group.
- The round of the group is the highest round of its veterans.
- A veteran that is one round behind takes that round's result from a veteran that has it, and makes its step.
- Every other member that is behind, or is not a veteran, takes over the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import xxhash

from gossip.wire.messages import Address, Enter

__all__ = ["Group", "GroupSeat", "Seats", "Stand", "Verdict"]


class GroupSeat(NamedTuple):
    """The seat of a member: its life, how often it has begun or ceased to take part, and whether it does now."""

    life: int
    stint: int
    active: bool


class Stand(NamedTuple):
    """The position of a member: see `Enter`."""

    round: int
    veteran: bool
    keeps: bool
    seal: int


class Seats:
    """The seats of all members. The default seat applies until a member says otherwise: only founders take part."""

    def __init__(self) -> None:
        self._seats: dict[int, GroupSeat] = {}

    def of(self, rank: int, life: int) -> GroupSeat:
        """Return the seat of a member."""
        seat = self._seats.get(rank)
        return seat if seat is not None and seat.life == life else GroupSeat(life, 0, life == 0)

    def learn(self, rank: int, seat: GroupSeat) -> bool:
        """Take in a member's message about its seat; return whether it is not older than its last message."""
        known = self.of(rank, seat.life)
        before = self._seats.get(rank)
        if (before is not None and before.life > seat.life) or known.stint > seat.stint:
            return False
        self._seats[rank] = seat
        return True


class Verdict(NamedTuple):
    """The conclusions from the positions of all members."""

    #: The round of the group, and the members that have reached it.
    round: int
    current: frozenset[int]
    #: The rank that gives its state to others, and the rank that gives the result of the last round, if any can.
    source: int
    keeper: int | None


class Group:
    """One group, as one of its members sees it form."""

    def __init__(self, me: Address, members: Mapping[int, int], seats: Seats) -> None:
        found = [(rank, seats.of(rank, life)) for rank, life in members.items()]
        text = repr([(rank, *seat) for rank, seat in found])
        #: 53 bits, for the wire.
        self.digest = xxhash.xxh3_64_intdigest(text.encode()) >> 11
        self.me = me
        self.members = {rank: Address(rank, life) for rank, life in members.items()}
        #: The ranks that take part, by place.
        self.places = [rank for rank, seat in found if seat.active]
        self.stands: dict[int, Stand] = {}

    @property
    def active(self) -> bool:
        """Whether this peer takes part."""
        return self.me.rank in self.places

    @property
    def formed(self) -> bool:
        """Whether all members have said where they stand."""
        return len(self.stands) == len(self.members)

    @property
    def silent(self) -> list[Address]:
        """Return the members that have not said where they stand."""
        return [address for rank, address in self.members.items() if rank not in self.stands]

    def hear(self, message: Enter) -> None:
        """Take in a member's position, if the message is about this group."""
        if message.digest == self.digest and self.members.get(message.origin.rank) == message.origin:
            stand = Stand(message.round, message.veteran, message.keeps, message.seal)
            self.stands.setdefault(message.origin.rank, stand)

    def verdict(self) -> Verdict | None:
        """Return the conclusions once the group is formed; None if no member takes part."""
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
