"""Who belongs to the swarm, as one peer acts on it: deaths, newcomers, its own lives, and how it leaves.

If the receiver of a parcel is declared dead the parcel is taken back, and that incarnation is fenced: should its
bearer be alive after all it must reincarnate, that is, write off all it holds and start again with its z and a weight
of 1. So whatever the network does nobody's mass is counted twice for long, and none is lost silently. Who is dead is
for `gossip.membership` to find out; its bodies travel among the other messages, and every message is a sign of life. A
peer that leaves hands all its mass over first (`gossip.core.farewell`).

The second of the three layers of a core, over `gossip.core.traffic`; `gossip.core.core` is the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gossip import events
from gossip.books.mass import Mass, Snapshot
from gossip.collective.making import exchange_of
from gossip.core.farewell import Farewell
from gossip.core.traffic import Traffic
from gossip.core.view import Roster
from gossip.errors import InvariantError
from gossip.membership import Membership, Record
from gossip.membership import member_events as members
from gossip.policies.policy import Policy
from gossip.settings import Settings
from gossip.values.blocks import inspect, shift
from gossip.wire.messages import Address, Bye, Fence, Roll

__all__ = ["Belonging"]


class Belonging(Traffic):
    """A peer's books, and its place among the others."""

    def __init__(
        self,
        me: Address,
        mass: Mass,
        roster: Roster,
        policy: Policy,
        settings: Settings,
        turns: Sequence[int] | None,
        membership: Membership | None,
    ) -> None:
        """Belong to a swarm; see `gossip.core.core.Core` for the arguments."""
        super().__init__(me, mass, roster, policy, settings, turns)
        self.membership = membership
        #: What is exchanged beside mass, by policies that do.
        self.exchange = exchange_of(policy, me, mass, settings)
        self._watching = False
        #: Who was last reported as slow.
        self._slow: set[int] = set()
        #: Whether we have joined and do not have the others' state yet.
        self._stateless = False
        #: Whether the values are the core's until somebody says `Resume`, or for good.
        self._resting = False
        self._turns_left = 0
        self._gone = False

    def _declare_dead(self, address: Address, now: float) -> None:
        if address.rank == self.me.rank:
            if address.incarnation >= self.me.incarnation:
                self._reincarnate(address.incarnation + 1, now)
            return
        current = self.view.incarnation(address.rank)
        if current is not None and current > address.incarnation:
            return  # old news: it has come back since
        self.view.fence(address)
        self._forget(address.rank, now)

    def _admit(self, address: Address, now: float) -> None:
        """Make sure that the address is a member; what went to its former lives comes back."""
        current = self.view.incarnation(address.rank)
        if self.view.leaving(address):
            return
        if address.rank == self.me.rank or (current is not None and current >= address.incarnation):
            if current == address.incarnation and self.view.fenced(address):
                self._send(Fence(self.me, address))  # it has not heard yet
            return
        self._forget(address.rank, now)
        if current is None:  # it comes with a weight of 1
            self._fair += (1 - self._fair) / (len(self.view.members) + 1)
        self.view.admit(address)
        if self.view.fenced(address):
            self._send(Fence(self.me, address))  # within reach again: the sooner it knows, the less is counted twice

    def _forget(self, rank: int, now: float) -> None:
        """Unlearn all about a life that is over; what went to it comes back."""
        self._waiting.forget(rank)
        self._backoff.forget(rank)
        self._resend.forget(rank)
        if self._farewell is not None:
            self._farewell.forget(rank)
        for address in [address for address in self._received if address.rank == rank]:
            del self._received[address]
        self._take_back(self.outbox.remove_all(rank), now)
        if self._choco is not None:
            self._choco.forget(rank)

    def _reincarnate(self, incarnation: int, now: float) -> None:
        """Give up this life: a crash and a join in one, with our own z."""
        if self.membership is not None:
            incarnation = max(incarnation, self.membership.next_life)
        held = self._held()
        self.me = Address(self.me.rank, incarnation)
        self.view.admit(self.me)
        self._new_life()
        self.mass.weights = [1.0] * self.mass.layout.shards
        self._emit(events.Reincarnated(self.me, held))
        if self.membership is not None:
            self._believe(self.membership.handle(members.Reincarnated(incarnation), now), now)
        if self._farewell is not None:
            self._farewell = self._new_farewell()

    def _look_after_members(self, now: float) -> None:
        watch = self.membership
        if watch is not None and self._watching and watch.deadline is not None and watch.deadline <= now:
            self._believe(watch.handle(members.Tick(), now), now)

    def _report_slow(self, now: float) -> None:
        if self.membership is not None and self._watching and self._waiting.slow != self._slow:
            for rank in sorted(self._waiting.slow ^ self._slow):
                self._believe(self.membership.handle(members.ReportSlow(rank, rank in self._waiting.slow), now), now)
            self._slow = set(self._waiting.slow)

    def _join(self, contacts: Sequence[Record], now: float) -> None:
        if self.membership is None:
            raise InvariantError("who looks after nobody cannot join", self.history())
        self._watching = self._stateless = True
        self._believe(self.membership.handle(members.Join(contacts), now), now)

    def _believe(self, effects: Iterable[members.Effect], now: float) -> None:
        """Do what membership found out or has to say."""
        for effect in effects:
            match effect:
                case members.Send(rank, body, endpoint, key):
                    to = Address(rank, self.view.incarnation(rank) or 0)
                    self._send(Roll(self.me, to, body), endpoint, key)
                case members.StateChanged(record, before):
                    self._emit(events.MemberChanged(record, before))  # first, so that it can be reached
                    address = Address(record.rank, record.incarnation)
                    (self._declare_dead if record.final else self._admit)(address, now)
                case members.LifeOver(incarnation):
                    if incarnation >= self.me.incarnation:
                        self._reincarnate(incarnation + 1, now)
                case members.Refused(reason):
                    self._emit(events.Expelled(reason))
                case members.Joined():
                    self._emit(events.Welcomed())

    # Leaving

    def _let_go(self, address: Address, hands_over: bool) -> None:
        """Plan without a peer that leaves; what it holds will be the others', or nobody's."""
        if self.view.incarnation(address.rank) == address.incarnation:
            self.view.leave(address)
            if hands_over:
                self._fair *= (len(self.view.members) + 1) / len(self.view.members)
            self._waiting.forget(address.rank)
            self._backoff.forget(address.rank)
        self._settle(address)

    def _leave(self, at_once: bool, now: float) -> None:
        # The values stay as they are, for whoever looks at the model afterwards: what comes back is passed on unmerged.
        self._open, self._resting, self._merges = True, True, False
        self._turns_left = 0  # what has not had its turn yet goes to the heirs
        if self._farewell is None:
            self._farewell = self._new_farewell()
        if self.exchange is not None:
            self.mass.weights = [0.0] * self.mass.layout.shards  # nobody is to have it
        # The values that one without a state started with are nobody's: they must not be handed on.
        if at_once or self._stateless or self.exchange is not None:
            for address in self._farewell.to_tell(now):
                self._send(Bye(self.me, address, hands_over=False))
            self._depart(now)

    def _new_farewell(self) -> Farewell:
        others = [self.view.address(rank) for rank in self.view.members if rank != self.me.rank]
        # Those who leave as well: mass of theirs may be on its way to us.
        return Farewell([*others, *self.view.departing()], self.mass.layout.shards, self.settings.resend_first)

    def _go_on_leaving(self, farewell: Farewell, now: float) -> None:
        for address in farewell.to_tell(now):
            self._send(Bye(self.me, address))
        if not farewell.settled:
            return
        heirs = [self.view.address(rank) for rank in self.view.members if rank != self.me.rank]
        left = [shard for shard in range(self.mass.layout.shards) if self._has_to_give(farewell, shard)]
        for shard in left if heirs else ():
            if not self.outbox.carries(shard):
                self._bequeath(farewell, shard, heirs, now)
        if not len(self.outbox) and not (heirs and any(self._has_to_give(farewell, shard) for shard in left)):
            self._depart(now)

    def _has_to_give(self, farewell: Farewell, shard: int) -> bool:
        held = self.mass.weights[shard] > 0 and shard not in farewell.worthless
        return held or self.inbox.weight(shard) > 0

    def _bequeath(self, farewell: Farewell, shard: int, heirs: Sequence[Address], now: float) -> None:
        """Offer mass of a shard to one of those who stay: what we hold, then what we have not merged, pile by pile."""
        heir = farewell.heir(shard, heirs, now)
        if heir is None or self.view.fenced(heir) or not self._has_budget(heir, shard):
            return
        weight, turn = self.mass.weights[shard], self.turns[shard]
        if weight > 0 and shard not in farewell.worthless:
            snapshot = self._snapshot(shard, whole=True)  # what rounding took off would stay with nobody
            if snapshot is not None and (moves := self.inbox.take_moves(shard)) is not None:
                # There will be no others: nothing of the shard is on its way, to us or from us.
                shift(snapshot.values, moves.values, 1 / weight)
                seal, finite = inspect(snapshot.values)
                snapshot = Snapshot(snapshot.values, seal) if finite else None
            if snapshot is None:
                farewell.worthless.add(shard)
            else:
                self.mass.weights[shard] = 0.0
                self._post(heir, shard, turn, weight, snapshot, 0.0, now)
        elif (pile := self.inbox.take(shard)) is not None:
            self._post(heir, shard, turn, pile.weight, Snapshot(pile.values, inspect(pile.values).seal), 0.0, now)
        if not self._has_to_give(farewell, shard):
            farewell.given(shard)

    def _depart(self, now: float) -> None:
        """Be gone, with or without all mass handed over."""
        held = self._held() + sum(entry.parcel.weight for entry in self.outbox)
        self._farewell = None
        self._gone = True
        if self.membership is not None:
            self._believe(self.membership.handle(members.Leave(), now), now)
        self._emit(events.Left(held))
