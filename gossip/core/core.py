"""The protocol of one peer, without a socket, a clock or a thread: events and the time go in, effects come out.

A core is made of parts, each in a file of its own, and this file lets events reach them:

    step         whose the values are, which shards take their turns, when the trainer goes on    gossip.core.step
    traffic      what is booked, merged, answered, taken back; by one way of exchanging           gossip.exchange
    books        the mass that is held, has arrived, is in flight                                 gossip.books
    life         who is there, who is dead, our own incarnations, the farewell                    gossip.core.life
    news         what is passed on to everybody                                                   gossip.core.news
    handover     the state, for newcomers                                                         gossip.core.handover
    collective   averages of everybody's vectors, or a centre, for policies that want one         gossip.collective
    outlet       the one way out                                                                  gossip.exchange.outlet

The caller's manual. Whoever drives a core, a real driver or the simulator, owes it this, in this order:

1. One thread alone calls it. Everybody else asks the driver for a `Status`.
2. Every event goes through `handle`, with a time that never goes back. Effects are carried out in the order in which
   they come, before the next event; a sink must not call back.
3. After every event the driver reads `deadline`, and calls `handle(Tick())` no later than that.
4. From `StepFinished` or `Rest` on the values are the core's: the trainer neither reads nor writes them until
   `Proceed`. Between `Proceed` and the next of these the core does not touch them, save for `Merge`, which ends with
   `Merged`.
5. The frames of a `Send` are not copied: their memory is left alone until the parcel is acknowledged, which the core
   sees to by itself. A message may be lost, doubled, damaged or late; nobody has to tell the core.
6. `Leave` is the last thing that is asked of a core. After `Left` it ignores everything but another `Leave`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gossip import events
from gossip.books.books import Books
from gossip.books.inbox import Inbox
from gossip.books.ledger import Outbox
from gossip.books.mass import Mass
from gossip.collective.making import exchange_of
from gossip.core.annex import Annex
from gossip.core.handover import Handover
from gossip.core.life import Life
from gossip.core.news import Rumours
from gossip.core.reception import Reception
from gossip.core.rejections import Rejections
from gossip.core.status import Status
from gossip.core.step import Phase, Step
from gossip.errors import InvariantError
from gossip.events import Effect, Event
from gossip.exchange.coding import Coding
from gossip.exchange.outlet import Outlet
from gossip.exchange.patience import Waiting
from gossip.exchange.peer_state import PeerState
from gossip.exchange.sender import Sender
from gossip.exchange.traffic import Traffic
from gossip.membership import Membership
from gossip.policies.policy import Policy
from gossip.settings import Settings
from gossip.view.view import Roster, View
from gossip.wire.frames import WireCodec
from gossip.wire.messages import ANYBODY, Address, Chunk, Enter, Lack, Shown

__all__ = ["Core"]

#: A parcel that had to be sent more often than this no longer counts as in flight.
_ATTEMPTS = 2


class Core:
    """One peer's protocol. Feed it with `handle`; call it again no later than `deadline`."""

    def __init__(
        self,
        me: Address,
        mass: Mass,
        roster: Roster,
        policy: Policy,
        settings: Settings,
        *,
        turns: Sequence[int] | None = None,
        now: float | None = None,
        membership: Membership | None = None,
        step: int = 0,
        annex: Annex | None = None,
    ) -> None:
        """Make the core of the peer ``me``.

        Args:
            me: this peer's address.
            mass: its values and weights.
            roster: who the members are, and the schedule for them.
            policy: the algorithm.
            settings: see `Settings`.
            turns: where in the schedule each shard is; a joiner takes its donor's.
            now: when the trainer starts its first step, so that it counts for how long a step takes.
            membership: looks after the members, from `Watch` or `Join` on; without it, somebody else tells who is dead.
            step: local steps finished before, according to a checkpoint or a donor.
            annex: what newcomers get beside the values; None: nothing.
        """
        layout = mass.layout
        known = roster.members.get(me.rank) == me.incarnation
        view = View(me.rank, roster if known else roster.changed(me.rank, me.incarnation))
        places = [0] * layout.shards if turns is None else list(turns)
        self.state = PeerState(me, mass, view, policy, settings, places)
        self.coding = Coding(settings.compress, settings.share, layout, policy)
        self.patience = Waiting(layout.shards, policy.lag_at(1), policy.every, policy.wait)
        models = 3 if policy.pairwise else 2
        inbox_bytes = settings.inbox_bytes or models * layout.total_bytes
        # Elastic averaging answers all at once, as its centre does; otherwise one pair is averaged after the other.
        self.books = Books(mass, settings.neighbour_bytes, inbox_bytes, apart=policy.fraction is None)
        self.outlet = Outlet(WireCodec(settings.run, layout, settings.compress, self.coding.differences))
        sender = Sender(self.state, self.books, self.coding, self.patience, self.outlet)
        self.traffic = Traffic(sender, lambda: self._step.merges)
        self.traffic.new_life()
        self._step = Step(self.traffic, step, now)
        # A founder that knows the others' endpoints alone, and drew its life as they did.
        lives_drawn = membership is not None and me.incarnation > 0 and len(view.members) > 1
        #: What is exchanged beside mass, by policies that do.
        self.collective = exchange_of(policy, me, mass, settings, lives_drawn=lives_drawn)
        self.life = Life(self.traffic, self._step, membership, hands_over=self.collective is None)
        self.news = Rumours(self.state, self.outlet, membership)
        self.handover = Handover(mass, places, annex or Annex())
        self._reception = Reception(self.traffic, self.life, self.handover, self.collective)

    # What the driver may look at

    @property
    def me(self) -> Address:
        """This peer, in its present life."""
        return self.state.me

    @property
    def mass(self) -> Mass:
        """The values and weights that are held."""
        return self.state.mass

    @property
    def view(self) -> View:
        """What this peer believes of the others."""
        return self.state.view

    @property
    def policy(self) -> Policy:
        """The algorithm."""
        return self.state.policy

    @property
    def turns(self) -> list[int]:
        """The next turn of each shard."""
        return self.state.turns

    @property
    def inbox(self) -> Inbox:
        """What has arrived and is not merged."""
        return self.books.inbox

    @property
    def outbox(self) -> Outbox:
        """What was sent and is not answered."""
        return self.books.outbox

    @property
    def membership(self) -> Membership | None:
        """What finds out who is there."""
        return self.life.membership

    @property
    def phase(self) -> Phase:
        """Where the step is."""
        return self._step.phase

    @property
    def step(self) -> int:
        """Local steps finished."""
        return self._step.number

    @step.setter
    def step(self, number: int) -> None:
        self._step.number = number

    @property
    def rejections(self) -> Rejections:
        """What was rejected."""
        return self._reception.rejections

    def status(self) -> Status:
        """Return an immutable picture of this core."""
        state, books = self.state, self.books
        shards = range(state.mass.layout.shards)
        unanswered, untrained = [0.0] * len(shards), [0.0] * len(shards)
        synchronous = state.policy.lag_at(self.step) == 0
        for entry in books.outbox:
            shard, weight = entry.parcel.shard, entry.parcel.weight
            unanswered[shard] += weight
            # A synchronous peer waits for the parcels of its last turns before it moves: only the answer is not here
            # yet. A parcel that was sent again and again is in flight to the dead, or so it seems: it will come back.
            recent = entry.parcel.turn >= state.turns[shard] - state.policy.rounds
            if not (synchronous and recent) and entry.attempts <= _ATTEMPTS:
                untrained[shard] += weight
        return Status(
            me=state.me,
            step=self.step,
            members=state.view.members,
            schedule=state.view.roster.schedule,
            share=self.coding.share,
            turns=tuple(state.turns),
            weights=tuple(state.mass.weights),
            waiting_weights=tuple([books.inbox.weight(shard) for shard in shards]),
            unanswered_weights=tuple(unanswered),
            untrained=tuple(untrained),
            arrivals=books.inbox.nbytes > books.inbox.asking,
            lacking=self.handover.lacking,
            called=self.collective is not None and self.collective.called,
            rejected=dict(self._reception.rejections.by_reason),
            gaps=dict(state.gaps),
        )

    # Events in, effects out

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in an event and return what is to be done about it, in that order; nothing if there is a sink."""
        if self._step.phase is Phase.GONE and not isinstance(event, events.Leave):
            return []  # what comes now stays its sender's, who hears that we left
        self._dispatch(event, now)
        self._work(now)
        return self.outlet.taken(type(event), now)

    def _dispatch(self, event: Event, now: float) -> None:
        match event:
            case events.StepFinished():
                if self._step.finish(now):
                    self._take_turn(now)
                elif self.policy.trains_alone:
                    self.news.step_alone(now)
                else:
                    self.news.tell(now)  # news are small, and must not wait for an exchange that is far away
            case events.Received(frames, looks_only):
                self._reception.receive(frames, looks_only, now)
            case events.Tick():
                self._take_turn(now)
                self.news.tick(now, trains=not self._step.open)
                self.traffic.out.resend_due(now)
                self.life.tick(now)
            case events.PeerDied(address):
                self.life.declare_dead(address, now)
            case events.PeerAlive(address):
                self.life.admit(address, now)
            case events.Merge():
                # A peer that asks has just moved what it pushed, and is better served by our mass once we have moved.
                self.traffic.merge_all(now, owed=True)
                self.outlet.emit(events.Merged())
            case events.Rest(merge):
                self._step.rest(merge, now)
                self.news.tell(now)
                self.outlet.emit(events.Rested())
            case events.Resume():
                self._step.resume()
            case events.Publish(body, at_once, fresh):
                self.news.publish(body, fresh)
                if at_once or self._step.open:
                    self.news.tell(now)
            case events.Adopt(donors):
                self.handover.adopt(donors)
            case events.Donate():
                self.life.stateless = False
                self.handover.donate()
            case events.Watch():
                self.life.watching = self.membership is not None
            case events.Join(contacts):
                self.life.join(contacts, now)
            case events.Measure(on):
                self._step.measure(on)
            case events.Advance(step):
                self.step = step
            case events.Leave(at_once):
                self.life.leave(at_once, now)
            case events.Synchronize() | events.Withdraw() | events.Reduce() | events.Offer():
                assert self.collective is not None, "only for policies that are collective"
                self.collective.handle(event, now)
            case events.Show(endpoint, key, body):
                self.outlet.send(Shown(self.me, Address(ANYBODY, 0), body), endpoint, key)

    def _take_turn(self, now: float) -> None:
        """Let the next shard take its turn; after the last one, pass the news on and look at the link."""
        last = self._step.take_turn(now)
        if last is not None:
            self.news.tell(now)
            self.life.report_slow(now)
            self._step.choose_coding(last)

    def _work(self, now: float) -> None:
        """Do what may be due after any event."""
        state, step = self.state, self._step
        for want in self.handover.asks(state.me, state.view, now):
            self.outlet.send(want)
        if step.phase is not Phase.TRAINING:
            for piece in self.handover.given(state.me, self.step):
                self.outlet.send(piece)
        if self.collective is not None and step.phase is not Phase.GONE:
            for one in self.collective.work(self.me, self.view.members, now):
                if isinstance(one, Enter | Lack | Chunk):
                    self.outlet.send(one)
                else:
                    self.outlet.emit(one)
        if state.leaving:
            self.life.go_on_leaving(now)
        step.proceed_if_ready(now)
        self.coding.busy(len(self.books.outbox) > 0, now)

    @property
    def deadline(self) -> float | None:
        """When a `Tick` is due, if nothing else happens before; None: never."""
        step = self._step
        if step.phase is Phase.GONE:
            return None
        due = [step.due_at, self.books.outbox.resend_at, self.patience.deadline, self.handover.deadline]
        due.append(self.news.late_at if step.phase is Phase.TRAINING else self.news.due_at)
        if self.life.watching or self.state.leaving:
            due.append(self.life.deadline)
        if self.collective is not None:
            due.append(self.collective.deadline)
        return min([moment for moment in due if moment is not None], default=None)

    # Checks

    def history(self) -> list[str]:
        """Return the recent events, oldest first, as an `InvariantError` shows them."""
        return self.outlet.history()

    def validate_state(self) -> None:
        """Raise an `InvariantError` with the recent history if anything contradicts itself."""
        wrong = self.outbox.check()
        if any(not weight >= -1e-12 for weight in self.mass.weights):
            wrong = f"a shard has a negative weight: {self.mass.weights}"
        if self.patience and not self._step.open:
            wrong = "the trainer runs and yet is waiting"
        if (self._step.turns_left > 0) != (self.phase is Phase.TURNS):
            wrong = f"{self._step.turns_left} shards have to take their turns while {self.phase.name}"
        if not self.patience.ranks <= self.view.members.keys():
            wrong = f"somebody is waited for who is no member: {self.patience.ranks}"
        for entry in self.outbox:
            if entry.parcel.origin != self.me:
                wrong = f"a parcel of a former life is still in the book: {entry.parcel.key}"
            if self.view.fenced(entry.parcel.destination):
                wrong = f"a parcel to the dead was not taken back: {entry.parcel.key}"
        if wrong:
            raise InvariantError(f"peer {self.me.rank}, step {self.step}: {wrong}", self.history())
