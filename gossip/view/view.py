"""What a peer believes of the others, and the schedule that follows from it.

Ranks are names and never change; the schedule is planned for as many places as there are members, and the members,
in the order of their ranks, fill the places. Peers with the same view so plan the same without a word. Peers
whose views differ for a while plan differently, and no harm is done: a push is a push.

A peer that *leaves*, and says so, is no member any more, but its parcels still count.

A *fence* is the highest incarnation of a rank that was declared dead here. What was in flight to that
incarnation has been taken back, so its bearer must never again be dealt with: it has to come back as a new one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from types import MappingProxyType

from gossip.wire.messages import Address
from topologies import Schedule
from topologies.draws import below

__all__ = ["Roster", "View"]


class Roster:
    """The members: immutable, so that the peers of a simulation can share what they agree on."""

    def __init__(
        self, members: Mapping[int, int], plan: Callable[[int], Schedule], schedule: Schedule | None = None
    ) -> None:
        """Make the roster of ``members``, rank to incarnation.

        Args:
            members: the incarnation of every member, by rank.
            plan: returns the schedule for a number of members.
            schedule: what ``plan`` would return, if it is known already.
        """
        self._plan = plan
        #: The incarnation of every member, by rank, ascending.
        self.members: Mapping[int, int] = MappingProxyType({rank: members[rank] for rank in sorted(members)})
        #: The members' ranks; their positions are the places of the schedule.
        self.places = list(self.members)
        self.schedule = plan(len(self.places)) if schedule is None else schedule
        self._changed: dict[tuple[int, int | None], Roster] = {}

    def changed(self, rank: int, incarnation: int | None) -> Roster:
        """Return the roster with a rank in this incarnation, or without it; the same object for the same change."""
        key = (rank, incarnation)
        if key not in self._changed:
            members = {other: life for other, life in self.members.items() if other != rank}
            if incarnation is not None:
                members[rank] = incarnation
            same_size = len(members) == len(self.places)
            self._changed[key] = Roster(members, self._plan, self.schedule if same_size else None)
        return self._changed[key]


class View:
    """The members as one of them sees them."""

    def __init__(self, rank: int, roster: Roster) -> None:
        self._rank = rank
        self._fences: dict[int, int] = {}
        self._leaving: dict[int, int] = {}
        self._adopt(roster)

    @property
    def members(self) -> Mapping[int, int]:
        """The incarnation of every member, this peer included, by rank, ascending."""
        return self._roster.members

    @property
    def roster(self) -> Roster:
        """The members as something that can be shared."""
        return self._roster

    def out_edges(self, turn: int) -> list[tuple[Address, float]]:
        """Return to whom this peer sends which fraction at a turn."""
        edges = self._roster.schedule.out_edges(self._place, turn)
        return [(self.address(self._roster.places[place]), fraction) for place, fraction in edges]

    def in_neighbours(self, turn: int) -> list[int]:
        """Return who sends to this peer at a turn, save those that are fenced."""
        places = self._roster.schedule.in_neighbours(self._place, turn)
        ranks = [self._roster.places[place] for place in places]
        return [rank for rank in ranks if not self.fenced(self.address(rank))]

    def skipped(self, behind: int) -> int:
        """Return the number of turns to skip for a peer that is behind another one by a number of turns.

        It skips all of them, so that both are at the same turn. A peer that is behind by more than a period is slow. It
        skips whole periods: otherwise it would only ever come to the turns in which faster peers push to it.
        """
        period = self._roster.schedule.period
        return max(0, behind - behind % period if period and behind > period else behind)

    def is_asked(self, rank: int, turn: int, degree: int | None = None) -> bool:
        """Whether it is the rank that begins an exchange with this peer at a turn: drawn where the edge goes both ways.

        Given the ``degree`` of this peer in the turn, who has fewer neighbours begins, and only between equals is it
        drawn. Both ends find the same, so one of them begins, unless their views differ: then it may be both or none.
        """
        edges = self._roster.schedule.out_edges(bisect_left(self._roster.places, rank), turn)
        if all(other != self._place for other, _ in edges):
            return False
        if degree is not None and degree != len(edges):
            return len(edges) < degree
        lower_begins = below(2, turn, min(rank, self._rank), max(rank, self._rank))
        return bool(lower_begins) == (rank < self._rank)

    def address(self, rank: int) -> Address:
        """Return a member in its present incarnation."""
        return Address(rank, self._roster.members[rank])

    def incarnation(self, rank: int) -> int | None:
        """Return the incarnation in which the rank is a member, or None if it is not one."""
        return self._roster.members.get(rank)

    def fenced(self, address: Address) -> bool:
        """Whether this incarnation, or a later one of the rank, was declared dead here."""
        return address.incarnation <= self._fences.get(address.rank, -1)

    def known(self, rank: int) -> bool:
        """Whether the rank is or was a member."""
        return rank in self._roster.members or rank in self._fences or rank in self._leaving

    def leaving(self, address: Address) -> bool:
        """Whether this incarnation has said that it leaves."""
        return self._leaving.get(address.rank) == address.incarnation

    def departing(self) -> list[Address]:
        """Return who has said that it leaves, and is not known to be gone."""
        leaving = [Address(*pair) for pair in self._leaving.items()]
        return [address for address in leaving if not self.fenced(address)]

    def leave(self, address: Address) -> None:
        """Plan without a peer that leaves. It may still deal with us: it is neither dead nor fenced."""
        self._leaving[address.rank] = address.incarnation
        if self._roster.members.get(address.rank) == address.incarnation:
            self._adopt(self._roster.changed(address.rank, None))

    def admit(self, address: Address) -> None:
        """Make the address a member, in place of any older incarnation."""
        self._adopt(self._roster.changed(address.rank, address.incarnation))

    def fence(self, address: Address) -> None:
        """Declare the address dead: no member any more, and nothing of this incarnation counts again."""
        current = self._roster.members.get(address.rank)
        if address.rank != self._rank and current is not None and current <= address.incarnation:
            self._adopt(self._roster.changed(address.rank, None))
        self._fences[address.rank] = max(address.incarnation, self._fences.get(address.rank, -1))

    def _adopt(self, roster: Roster) -> None:
        self._roster = roster
        self._place = bisect_left(roster.places, self._rank)
        assert roster.places[self._place] == self._rank, "a peer is always a member of its own view"
