"""The protocol of one peer, without a socket, a clock or a thread.

Theory of operation. The peer is *training* (the values belong to the trainer) or *open* (they belong to the core):

    training --StepFinished--> open      merge what is due, push this step's shards, merge again, wait if need be
    open     --Proceed-------> training  once nothing is waited for any more, by arrival or by deadline
    training --Rest----------> open      push nothing; merge whatever comes
    open     --Resume--------> training  at once
    training --Merge---------> training  merge what is due and asks for nothing, between the gradient and the move,
                                         which then counts for what has arrived in the meantime as well

Each shard walks the schedule at its own pace: its *turn* counts its own pushes, so a share of the shards per step
cannot alias with the schedule's period. Where a policy ever waits for a turn, or averages pairs, it is a Lamport clock:
a shard that finds itself behind skips to where the others are. And where a policy is synchronous a parcel of a later
turn waits for that turn, so that turns mix in order.

A core has three layers, each in a file of its own and each a class that the next extends: `gossip.core.traffic` moves
mass, `gossip.core.belonging` knows who is there, and this one takes events in, runs the step, and reads messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from gossip import events
from gossip.books.inbox import Ask
from gossip.books.mass import Mass
from gossip.core.belonging import Belonging
from gossip.core.handover import Handover
from gossip.core.news import Rumours
from gossip.core.rejections import Rejections
from gossip.core.view import Roster
from gossip.errors import InvariantError, Reason, Rejected
from gossip.events import Effect, Event
from gossip.membership import Membership
from gossip.membership import member_events as members
from gossip.policies.policy import Policy
from gossip.settings import Settings
from gossip.values.buffers import Buffer
from gossip.wire.messages import (
    ANYBODY,
    Ack,
    Address,
    Bye,
    Chunk,
    Enter,
    Fence,
    Hello,
    Lack,
    Look,
    Message,
    News,
    Parcel,
    Pass,
    Piece,
    Proposal,
    Pull,
    Refusal,
    Roll,
    Settled,
    Shown,
    Want,
)

__all__ = ["Core"]

#: Bytes of updates about members that ride on a neighbour's news.
_UPDATES = 1024


class Core(Belonging):
    """One peer's protocol state. Feed it with `handle`; call it again no later than `deadline`."""

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
        """
        super().__init__(me, mass, roster, policy, settings, turns, membership)
        #: Local steps finished.
        self.step = 0
        self.rejections = Rejections()
        self._next_shard = 0
        #: Steps since the last exchange: their computing is the time that its push had.
        self._since_exchange = 0
        self._handover = Handover(mass, self.turns)
        self._rumours = Rumours()
        if now is not None:
            self._waiting.step_began(now)
        self._turns_due_at = 0.0

    @property
    def lacking(self) -> int:
        """How many pieces of the state that this peer adopts have not come yet."""
        return self._handover.lacking

    # Events in, effects out

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in an event and return what is to be done about it, in that order; nothing if there is a `sink`."""
        if self._gone and not isinstance(event, events.Leave):
            return []  # what comes now stays its sender's, who hears that we left
        match event:
            case events.StepFinished():
                self._finish_step(now)
            case events.Received(frames, looks_only):
                self._receive(frames, looks_only, now)
            case events.Tick():
                self._take_turns(now)
                self._send_again(now)
                self._look_after_members(now)
            case events.PeerDied(address):
                self._declare_dead(address, now)
            case events.PeerAlive(address):
                self._admit(address, now)
            case events.Merge():
                # Who asks has just moved what it pushed, and is better served by our mass once it is moved as well.
                self._merge_all(now, owed=True)
                self._emit(events.Merged())
            case events.Rest(merge):
                self._rest(merge, now)
            case events.Resume():
                self._resting, self._merges = False, True
            case events.Publish(body):
                self._rumours.body = body
                if self._open:
                    self._tell(now)
            case events.Adopt(donors):
                self._handover.adopt(donors)
            case events.Donate(annex):
                self._stateless = False
                self._handover.donate(annex)
            case events.Watch():
                self._watching = self.membership is not None
            case events.Join(contacts):
                self._join(contacts, now)
            case events.Leave(at_once):
                self._leave(at_once, now)
            case events.Synchronize() | events.Withdraw() | events.Reduce() | events.Offer():
                assert self.exchange is not None, "only for policies that are collective"
                self.exchange.handle(event, now)
            case events.Show(endpoint, key, body):
                self._send(Shown(self.me, Address(ANYBODY, 0), body), endpoint, key)
        self._hand_over(now)
        if self.exchange is not None and not self._gone:
            for one in self.exchange.work(self.me, self.view.members, now):
                if isinstance(one, Enter | Lack | Chunk):
                    self._send(one)
                else:
                    self._emit(one)
        if self._farewell is not None:
            self._go_on_leaving(self._farewell, now)
        if self._open:
            self._waiting.expire(now)  # also of one that was told to leave while it waited, or its deadline never ends
            if not self._resting and not self._waiting and not self._turns_left:
                self._open = False
                self._waiting.step_began(now)
                self._emit(events.Proceed(self.step))
        self.coding.busy(len(self.outbox) > 0, now)
        self._history.append((now, type(event), self._kinds))
        effects, self._effects, self._kinds = self._effects, [], []
        return effects

    @property
    def deadline(self) -> float | None:
        """When a `Tick` is due, if nothing else happens before; None: never."""
        if self._gone:
            return None
        news = self._rumours.due_at if self._open else None
        turns = self._turns_due_at if self._turns_left else None
        farewell = None if self._farewell is None else self._farewell.deadline
        watch = self.membership.deadline if self.membership is not None and self._watching else None
        exchange = None if self.exchange is None else self.exchange.deadline
        due = [turns, self.outbox.resend_at, self._waiting.deadline, self._handover.deadline, news, farewell, watch]
        return min([moment for moment in (*due, exchange) if moment is not None], default=None)

    # The step

    def _finish_step(self, now: float) -> None:
        if self._open:
            raise InvariantError(f"step {self.step} is finished already; wait for Proceed", self.history())
        self._waiting.step_ended(now)
        self._open = True
        self.step += 1
        self._since_exchange += not self.measuring
        lag = self.policy.lag_at(self.step)
        self._waiting.keep_lag(lag)
        self.inbox.in_order = lag == 0
        self._merge_all(now)
        if not (self.policy.exchanges(self.step) or self.measuring):
            self._tell(now)  # news are small, and who does what must not wait for an exchange that is far away
            return
        self._turns_left = max(1, round(self.coding.most * self.mass.layout.shards))
        self._turns_due_at = now
        self._take_turns(now)

    def _take_turns(self, now: float) -> None:
        """Let the next shard take its turn; the rest are due at once, with a `Tick`.

        One at a time, so that what has arrived is merged and answered in between, while it is in the cache, and less
        memory is in flight at a time.
        """
        if not self._turns_left:
            return
        self._turns_left -= 1
        shard, self._next_shard = self._next_shard, (self._next_shard + 1) % self.mass.layout.shards
        self._take_turn(shard, now)
        if not self._turns_left:
            self._tell(now)
            self._report_slow(now)
            self._choose_coding(len(self.view.out_edges(self.turns[shard] - 1)))

    def _choose_coding(self, pushes: int) -> None:
        """Let the coding look whether another would suit the link better, after a turn with so many pushes."""
        if self.measuring:
            # Whole shards go out as they are, and nothing is computed: no time to choose, nor to measure by.
            self.coding.look_anew(self._waiting.waited)
            return
        steps, self._since_exchange = self._since_exchange, 0
        typical = self._waiting.step_time
        compute = None if typical is None else steps * typical
        choice = self.coding.exchanged(compute, self._waiting.waited, pushes)
        if choice is not None:
            self._emit(events.Compressing(choice))

    def _rest(self, merge: bool, now: float) -> None:
        if self._open:
            raise InvariantError("the values are the core's already; wait for Proceed, or Resume", self.history())
        self._open = self._resting = True
        self._merges = merge
        if merge:
            self._merge_all(now)
        self._tell(now)
        self._emit(events.Rested())

    def _take_turn(self, shard: int, now: float) -> None:
        turn = self.turns[shard]
        behind = self._furthest[shard] - turn
        lag = self._waiting.lag
        if lag is None:
            turn += self.view.skipped(behind)
        # Peers that wait for their neighbours are as many turns apart as there are links between them, about log n, and
        # as many times that as they may be late.
        elif behind > (1 + lag) * len(self.view.members).bit_length():
            turn += behind  # further behind than that is slow, or was cut off
        self.turns[shard] = turn + 1
        self._waiting.pushed(shard, turn, now)
        if not self.measuring and self.coding.leaves_out(shard, self.me.rank, self.step):
            for address, _ in self.view.out_edges(turn):
                self._pass(address, shard, turn)
        elif self.policy.pulls:
            self._pull(shard, turn)
        elif self._pairs is not None and not self.measuring:
            self._offer(self._pairs, shard, turn, now)
        elif self._choco is not None and not self.measuring:
            self._tell_differences(self._choco, shard, turn, now)
        else:
            self._push(shard, turn, now)
        self._merge_due(shard, now)
        if lag is not None and turn >= lag:
            for rank in self.view.in_neighbours(turn - lag):
                self._waiting.want(rank, shard, turn - lag, now, self.settings)

    # Telling

    def _tell(self, now: float) -> None:
        """Pass the news on to the next neighbours."""
        if self._rumours.body:
            for address, _ in self.view.out_edges(self._rumours.next_turn(now)):
                updates = self.membership.piggyback(_UPDATES) if self.membership is not None else b""
                self._send(News(self.me, address, self._rumours.body, updates))

    def _hand_over(self, now: float) -> None:
        """Ask for what we lack of the state, and give what others lack as far as the values are ours to read."""
        for want in self._handover.asks(self.me, self.view, now):
            self._send(want)
        if self._open:
            for piece in self._handover.given(self.me):
                self._send(piece)

    def _send_again(self, now: float) -> None:
        if self._open and self._rumours.due_at is not None and self._rumours.due_at <= now:
            self._tell(now)
        self._resend_due(now)

    # Receiving

    def _receive(self, frames: Sequence[Buffer], looks_only: bool, now: float) -> None:
        try:
            message = self._codec.decode(frames)
            if looks_only and not isinstance(message, Look):
                raise Rejected(Reason.STRANGER, "its key is good for looking only", message.origin.rank)
            self._accept(message, now)
        except Rejected as error:
            log = self.rejections.add(error.reason, error.origin, now)
            count = self.rejections.by_reason[error.reason]
            self._emit(events.RejectedFrame(error.reason, error.origin, str(error), count, log))

    def _accept(self, message: Message, now: float) -> None:
        origin, destination = message.origin, message.destination
        self._history.append((now, type(message), (origin, destination)))
        if isinstance(message, Roll | Look | Shown):
            self._accept_from_anybody(message, now)
            return
        if destination.rank != self.me.rank or origin.rank == self.me.rank or not self.view.known(origin.rank):
            raise Rejected(Reason.STRANGER, f"from {origin.rank} to {destination.rank}", origin.rank)
        if self.view.fenced(origin) and not isinstance(message, Fence):
            if not isinstance(message, Hello):  # somebody whom we believe dead, and who deals with us: it must be told
                self._send(Fence(self.me, origin))
            raise Rejected(Reason.STALE, f"incarnation {origin.incarnation} is dead here", origin.rank)
        current = self.view.incarnation(origin.rank)
        if current is not None and origin.incarnation < current:
            raise Rejected(Reason.STALE, f"incarnation {origin.incarnation} is over", origin.rank)
        if not self.view.fenced(origin):
            self._admit(origin, now)
            if self.membership is not None and self._watching:
                self._believe(self.membership.heard(origin.rank, origin.incarnation, now), now)
        if isinstance(message, Fence):
            if destination.incarnation > self.me.incarnation:
                raise Rejected(Reason.STALE, f"a fence for incarnation {destination.incarnation} of us", origin.rank)
            if destination.incarnation == self.me.incarnation:
                self._reincarnate(destination.incarnation + 1, now)
            self._send(Hello(self.me, origin))
            return
        if isinstance(message, Hello):
            return  # to know who it is was all
        if isinstance(message, News):
            if message.updates and self.membership is not None:
                self._believe(self.membership.absorb(message.updates, now), now)
            self._emit(events.Heard(origin, message.body))
            return
        if isinstance(message, Bye):
            self._let_go(origin, message.hands_over)
            return
        if destination.incarnation != self.me.incarnation:
            if isinstance(message, Parcel) and destination.incarnation < self.me.incarnation:
                self._send(Hello(self.me, origin))
            raise Rejected(Reason.STALE, f"for incarnation {destination.incarnation} of us", origin.rank)
        match message:
            case Parcel(turn=turn, shard=shard) | Pass(turn=turn, shard=shard) if self._is_absurd(turn, shard):
                raise Rejected(Reason.WINDOW, f"turn {turn}", origin.rank)
            case Parcel():
                self._take_in(message, now)
            case Pass(turn=turn, shard=shard):
                self._heard(origin.rank, shard, turn, now)
            case Ack(sequence=sequence):
                self._acknowledged(origin, sequence, now)
            case Refusal(sequence=sequence):
                self._refused(origin, sequence, now)
            case Want(piece=piece):
                self._handover.want(origin, piece)
            case Piece():
                if self._handover.take(message):
                    self._stateless = False
                    self._emit(events.Adopted(self._handover.annex))
            case Pull(turn=turn, shard=shard, fraction=fraction):
                self._asks[origin.rank, shard] = Ask(origin, turn, fraction)
                if self._open and self._merges:
                    self._merge_due(shard, now)
            case Proposal(shard=shard) if self._pairs is not None:
                self._pairs.hear(message)
                if self._open and self._merges:
                    self._merge_due(shard, now)
            case Enter() | Lack() | Chunk() if self.exchange is not None:
                self.exchange.receive(message, self.me, self.view.members, now)
            case Settled() if self._farewell is not None:
                self._farewell.settle(origin)

    def _accept_from_anybody(self, message: Roll | Look | Shown, now: float) -> None:
        """Take in what may come from one that is no member, dead to us, or found under another's rank."""
        if message.destination.rank not in (self.me.rank, ANYBODY):
            raise Rejected(Reason.STRANGER, f"for {message.destination.rank}", message.origin.rank)
        if isinstance(message, Look):
            self._emit(events.Looked(message.endpoint, message.key))
        elif isinstance(message, Roll) and self.membership is not None:
            self._believe(self.membership.handle(members.Received(message.origin.rank, message.body), now), now)
        else:
            raise Rejected(Reason.STRANGER, "nobody asked for it", message.origin.rank)

    # Checks

    def validate_state(self) -> None:
        """Raise an `InvariantError` with the recent history if anything contradicts itself."""
        wrong = self.outbox.check()
        if any(not weight >= -1e-12 for weight in self.mass.weights):
            wrong = f"a shard has a negative weight: {self.mass.weights}"
        if self._waiting and not self._open:
            wrong = "the trainer runs and yet is waiting"
        if not self._waiting.ranks <= self.view.members.keys():
            wrong = f"somebody is waited for who is no member: {self._waiting.ranks}"
        for entry in self.outbox:
            if entry.parcel.origin != self.me:
                wrong = f"a parcel of a former life is still in the book: {entry.parcel.key}"
            if self.view.fenced(entry.parcel.destination):
                wrong = f"a parcel to the dead was not taken back: {entry.parcel.key}"
        if wrong:
            raise InvariantError(f"peer {self.me.rank}, step {self.step}: {wrong}", self.history())
