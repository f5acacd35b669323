"""What a peer believes of the others, and the schedule that follows from it.

Ranks are names and never change; the schedule is planned for as many places as there are members, and the members,
in the order of their ranks, fill the places. Peers with the same view so plan the same without a word. Peers
whose views differ for a while plan differently, and no harm is done: a push is a push.

A *fence* is the highest incarnation of a rank that was declared dead here. What was on its way to that
incarnation has been taken back, so its bearer must never again be dealt with: it has to come back as a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gossip.messages import Address
from topologies import Schedule

__all__ = ["View"]


class View:
    """The members as one of them sees them."""

    def __init__(self, rank: int, members: Mapping[int, int], plan: Callable[[int], Schedule]) -> None:
        self._rank = rank
        self._plan = plan
        self._members = dict(members)  #: rank -> incarnation, this peer's own included
        self._fences: dict[int, int] = {}
        self._replan()

    @property
    def members(self) -> Mapping[int, int]:
        """The incarnation of every member, by rank, ascending."""
        return {rank: self._members[rank] for rank in self._places}

    def out_edges(self, turn: int) -> list[tuple[Address, float]]:
        """Return to whom this peer sends which fraction at a turn."""
        return [
            (self.address(self._places[place]), fraction)
            for place, fraction in self._schedule.out_edges(self._place, turn)
        ]

    def in_neighbours(self, turn: int) -> list[int]:
        """Return who sends to this peer at a turn, save those that are fenced."""
        ranks = [self._places[place] for place in self._schedule.in_neighbours(self._place, turn)]
        return [rank for rank in ranks if not self.fenced(self.address(rank))]

    def address(self, rank: int) -> Address:
        """Return a member in its present incarnation."""
        return Address(rank, self._members[rank])

    def incarnation(self, rank: int) -> int | None:
        """Return the incarnation in which the rank is a member, or None if it is not one."""
        return self._members.get(rank)

    def fenced(self, address: Address) -> bool:
        """Whether this incarnation, or a later one of the rank, was declared dead here."""
        return address.incarnation <= self._fences.get(address.rank, -1)

    def known(self, rank: int) -> bool:
        """Whether the rank is or was a member."""
        return rank in self._members or rank in self._fences

    def admit(self, address: Address) -> None:
        """Make the address a member, in place of any older incarnation."""
        new = address.rank not in self._members
        self._members[address.rank] = address.incarnation
        if new:
            self._replan()

    def fence(self, address: Address) -> None:
        """Declare the address dead: no member any more, and nothing of this incarnation counts again."""
        self._fences[address.rank] = max(address.incarnation, self._fences.get(address.rank, -1))
        self.drop(address)

    def drop(self, address: Address) -> None:
        """Take the address out of the members."""
        if address.rank != self._rank and self._members.get(address.rank, -1) <= address.incarnation:
            self._members.pop(address.rank, None)
            self._replan()

    def _replan(self) -> None:
        self._places = sorted(self._members)
        self._place = self._places.index(self._rank)
        self._schedule = self._plan(len(self._places))
