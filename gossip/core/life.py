"""A peer's life among the others: deaths, newcomers, its own incarnations, and how it leaves.

If the receiver of a parcel is declared dead the parcel is taken back, and that incarnation is fenced: should its
bearer be alive after all it must reincarnate, that is, write off all it holds and start again with its z and a weight
of 1. So whatever the network does nobody's mass is counted twice for long, and none is lost silently.
`gossip.membership` finds out who is dead; its bodies travel among the other messages, and every message is a sign of
life. A peer that leaves hands all its mass over first (`gossip.core.farewell`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gossip import events
from gossip.core.leaving import Leaving
from gossip.core.step import Step
from gossip.errors import InvariantError
from gossip.exchange.traffic import Traffic
from gossip.membership import Membership, Record
from gossip.membership import member_events as members
from gossip.wire.messages import Address, Roll

__all__ = ["Life"]


class Life:
    """One peer's place among the others."""

    def __init__(self, traffic: Traffic, step: Step, membership: Membership | None, *, hands_over: bool) -> None:
        """Begin the first life.

        Args:
            traffic: moves the mass.
            step: whose the values are.
            membership: finds out who is there, if anybody here does.
            hands_over: whether a peer that leaves has mass to hand over.
        """
        self._traffic = traffic
        self._state = traffic.state
        self._out = traffic.out
        self._outlet = traffic.out.outlet
        self._patience = traffic.out.patience
        self._step = step
        self._hands_over = hands_over
        self.membership = membership
        self.leaving = Leaving(traffic.out)
        #: Whether membership is at work.
        self.watching = False
        #: Whether we have joined and do not have the others' state yet.
        self.stateless = False
        #: The ranks that were last reported as slow.
        self._slow: set[int] = set()

    @property
    def deadline(self) -> float | None:
        """When membership, or a farewell, wants to be called again."""
        watch = self.membership.deadline if self.membership is not None and self.watching else None
        moments = [moment for moment in (self.leaving.deadline, watch) if moment is not None]
        return min(moments, default=None)

    # Others

    def declare_dead(self, address: Address, now: float) -> None:
        """Fence an incarnation, and take back what went to it."""
        view = self._state.view
        if address.rank == self._state.me.rank:
            if address.incarnation >= self._state.me.incarnation:
                self.reincarnate(address.incarnation + 1, now)
            return
        current = view.incarnation(address.rank)
        if current is not None and current > address.incarnation:
            return  # old news: it has come back since
        view.fence(address)
        self._forget(address.rank, now)

    def admit(self, address: Address, now: float) -> None:
        """Make sure that the address is a member; what went to its former lives comes back."""
        state, view = self._state, self._state.view
        current = view.incarnation(address.rank)
        if view.leaving(address):
            return
        if address.rank == state.me.rank or (current is not None and current >= address.incarnation):
            if current == address.incarnation and view.fenced(address):
                self._out.fence(address)  # it has not heard yet
            return
        self._forget(address.rank, now)
        if current is None:  # it comes with a weight of 1
            state.fair += (1 - state.fair) / (len(view.members) + 1)
        view.admit(address)
        if view.fenced(address):
            self._out.fence(address)  # within reach again: the sooner it knows, the less is counted twice

    def let_go(self, address: Address, hands_over: bool) -> None:
        """Plan without a peer that leaves; what it holds will be the others', or nobody's."""
        state = self._state
        if state.view.incarnation(address.rank) == address.incarnation:
            state.view.leave(address)
            if hands_over:
                state.fair *= (len(state.view.members) + 1) / len(state.view.members)
            self._patience.forget(address.rank)
            self._out.backoff.forget(address.rank)
        self._out.settle(address)

    def _forget(self, rank: int, now: float) -> None:
        """Unlearn all about a life that is over; what went to it comes back."""
        self._patience.forget(rank)
        self.leaving.forget(rank)
        self._traffic.forget(rank, now)

    # This peer

    def reincarnate(self, incarnation: int, now: float) -> None:
        """Give up this life: a crash and a join in one, with our own z."""
        state = self._state
        if self.membership is not None:
            incarnation = max(incarnation, self.membership.next_life)
        held = self._traffic.books.held()
        state.me = Address(state.me.rank, incarnation)
        state.view.admit(state.me)
        self._traffic.new_life()
        state.mass.weights = [1.0] * state.mass.layout.shards
        self._outlet.emit(events.Reincarnated(state.me, held))
        if self.membership is not None:
            self.believe(self.membership.handle(members.NextLife(incarnation), now), now)
        self.leaving.new_life()

    def join(self, contacts: Sequence[Record], now: float) -> None:
        """Ask to be let in."""
        if self.membership is None:
            raise InvariantError(
                f"Join needs a core with membership, and rank {self._state.me.rank} has none", self._outlet.history()
            )
        self.watching = self.stateless = True
        self.believe(self.membership.handle(members.AskIn(contacts), now), now)

    def leave(self, at_once: bool, now: float) -> None:
        """Begin to leave: hand everything over, or be gone at once."""
        state = self._state
        self._step.leave()
        self.leaving.begin()
        if not self._hands_over:
            state.mass.weights = [0.0] * state.mass.layout.shards  # nobody is to have it
        # The values that a peer without a state started with are nobody's: they must not be handed on.
        if at_once or self.stateless or not self._hands_over:
            self.leaving.tell(now, hands_over=False)
            self._depart(now)

    def go_on_leaving(self, now: float) -> None:
        """Do the next part of a farewell, if one has begun."""
        if self.leaving.go_on(now):
            self._depart(now)

    def _depart(self, now: float) -> None:
        """Be gone, with or without all mass handed over."""
        books = self._traffic.books
        held = books.held() + sum(entry.parcel.weight for entry in books.outbox)
        self.leaving.end()
        self._step.depart()
        if self.membership is not None:
            self.believe(self.membership.handle(members.MemberLeave(), now), now)
        self._outlet.emit(events.Left(held))

    # Membership

    def heard(self, address: Address, now: float) -> None:
        """Take in that a member lives."""
        if self.membership is not None and self.watching:
            self.believe(self.membership.heard(address.rank, address.incarnation, now), now)

    def absorb(self, updates: bytes, now: float) -> None:
        """Take in what others say about members, along with their news."""
        if updates and self.membership is not None:
            self.believe(self.membership.absorb(updates, now), now)

    def tick(self, now: float) -> None:
        """Let membership do what is due."""
        watch = self.membership
        if watch is not None and self.watching and watch.deadline is not None and watch.deadline <= now:
            self.believe(watch.handle(members.MemberTick(), now), now)

    def report_slow(self, now: float) -> None:
        """Let membership know who is regularly too late."""
        slow = self._patience.slow
        if self.membership is not None and self.watching and slow != self._slow:
            for rank in sorted(slow ^ self._slow):
                self.believe(self.membership.handle(members.ReportSlow(rank, rank in slow), now), now)
            self._slow = set(slow)

    def believe(self, effects: Iterable[members.Effect], now: float) -> None:
        """Do what membership found out or has to say."""
        state = self._state
        for effect in effects:
            match effect:
                case members.SendBody(rank, body, endpoint, key):
                    to = Address(rank, state.view.incarnation(rank) or 0)
                    self._outlet.send(Roll(state.me, to, body), endpoint, key)
                case members.StateChanged(record, before):
                    self._outlet.emit(events.MemberChanged(record, before))  # first, so that it can be reached
                    address = Address(record.rank, record.incarnation)
                    (self.declare_dead if record.final else self.admit)(address, now)
                case members.LifeOver(incarnation):
                    if incarnation >= state.me.incarnation:
                        self.reincarnate(incarnation + 1, now)
                case members.JoinRefused(reason):
                    self._outlet.emit(events.Expelled(reason))
                case members.Joined():
                    self._outlet.emit(events.Welcomed())
