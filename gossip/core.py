"""The protocol of one peer, without a socket, a clock or a thread.

Theory of operation. The peer is *training* (the values belong to the trainer) or *open* (they belong to the core):

    training --StepFinished--> open      merge what is due, push this step's shards, merge again, wait if need be
    open     --Proceed-------> training  once nothing is waited for any more, by arrival or by deadline
    training --Rest----------> open      push nothing; merge whatever comes
    open     --Resume--------> training  at once
    training --Merge---------> training  merge what is due, between the gradient and the optimizer's move, so that the
                                         move counts for the mass that has arrived in the meantime as well

Each shard walks the schedule at its own pace: its *turn* counts its own pushes, so a share of the shards per step
cannot alias with the schedule's period. Where a policy ever waits for a turn it is a Lamport clock: a shard that finds
itself behind skips to where the others are. And where a policy is synchronous a parcel of a later turn waits for that
turn, so that turns mix in order.

Mass is always in exactly one book: the `Mass` held, the `Inbox` (arrived, not merged), or the `Outbox` (sent, not
answered). A parcel is answered once and for ever: booked (the sender forgets it) or refused (the sender takes it
back). If its receiver is declared dead it is taken back as well, and that incarnation is fenced: should its bearer be
alive after all it must reincarnate, that is, write off all it holds and start again with its z and a weight of 1.
So whatever the network does nobody's mass is counted twice for long, and none is lost silently. Who is dead is for
`gossip.membership` to find out; its bodies travel among the other messages, and every message is a sign of life.
A peer that leaves hands all its mass over first (`gossip.farewell`).

No sinks: a push leaves its sender at least `weight_floor`, a parcel that would lift its receiver above
`weight_cap` is refused, and after a refusal the sender skips 1, 2, 4, ... turns to that neighbour. Both are relative to
the *fair* weight: 1, and more where those who left have handed theirs over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from gossip import events
from gossip.backoff import Backoff
from gossip.blocks import inspect
from gossip.coding import Coding
from gossip.collective.making import exchange_of
from gossip.errors import InvariantError, Reason, Rejected
from gossip.events import Effect, Event
from gossip.farewell import Farewell
from gossip.handover import Handover
from gossip.inbox import Ask, Inbox
from gossip.ledger import Outbox, Received
from gossip.mass import Mass, Snapshot, distance
from gossip.membership import Membership, Record
from gossip.membership import events as members
from gossip.messages import (
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
    Pull,
    Refusal,
    Roll,
    Settled,
    Shown,
    Want,
)
from gossip.policies.policy import Policy
from gossip.rejections import Rejections
from gossip.resend import Resend
from gossip.rumours import Rumours
from gossip.settings import Settings
from gossip.view import Roster, View
from gossip.waiting import Waiting
from gossip.wire import Buffer, Codec

__all__ = ["Core"]

#: A push that the floor cuts to less than this part of the scheduled fraction is not worth its bytes.
_WORTHWHILE = 0.25
#: Nobody honest is further ahead than this. Turns are followed, so a lie must not carry us out of their range.
_TURNS_AHEAD = 1_000_000
#: Bytes of updates about members that ride on a neighbour's news.
_UPDATES = 1024


class Core:
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
        layout = mass.layout
        self.me = me
        self.mass = mass
        self.policy = policy
        self.settings = settings
        known = roster.members.get(me.rank) == me.incarnation
        self.view = View(me.rank, roster if known else roster.changed(me.rank, me.incarnation))
        #: Local steps finished.
        self.step = 0
        #: The next turn of each shard.
        self.turns = [0] * layout.shards if turns is None else list(turns)
        self.rejections = Rejections()
        #: While `measuring`, how far the last mass that was merged into each shard lay from our own; see `distance`.
        self.measuring = False
        self.gaps: dict[int, float] = {}
        self._codec = Codec(settings.run, layout, settings.compress)
        self.coding = Coding(settings.compress, settings.share, layout)
        #: What is exchanged beside mass, by policies that do.
        self.exchange = exchange_of(policy, me, mass, settings)
        self._window = 4 * layout.shards + 64
        self._neighbour_bytes = settings.neighbour_bytes or 2 * layout.total_bytes
        self._inbox_bytes = settings.inbox_bytes or 2 * layout.total_bytes
        self._next_shard = 0
        #: Whether the values are the core's: from StepFinished to Proceed, or from Rest to Resume.
        self._open = False
        self._resting = False
        #: Whether what arrives while the values are the core's is merged at once.
        self._merges = True
        self._handover = Handover(mass, self.turns)
        self._rumours = Rumours()
        #: The latest turn of each shard that anybody is known to have pushed; stays -1 where turns do not matter.
        self._furthest = [-1] * layout.shards
        self._waiting = Waiting(layout.shards, policy.lag)
        if now is not None:
            self._waiting.step_began(now)
        self.membership = membership
        self._watching = False
        #: Who was last reported as slow.
        self._slow: set[int] = set()
        #: What the average peer holds of a shard, by what is known of who left and who joined.
        self._fair = 1.0
        self._farewell: Farewell | None = None
        #: Whether we have joined and do not have the others' state yet.
        self._stateless = False
        self._gone = False
        self._backoff = Backoff()
        self._resend = Resend(settings.resend_first, settings.resend_floor, settings.resend_ceiling)
        #: Types and addresses only: a frame kept here would keep its memory.
        self._history: deque[tuple[float, type, Sequence[Address | type]]] = deque(maxlen=64)
        #: Carries out each effect as it arises, so that the first parcel leaves before the second is copied. It must
        #: not call back. Without one, `handle` returns them.
        self.sink: Callable[[Effect], None] | None = None
        #: How many shards take their turns in one call of `handle`; 0: all whose turn it is. With few, what has arrived
        #: is merged and answered in between, while it is in the cache, and less memory is on its way at a time.
        self.at_once = 0
        self._turns_left = 0
        self._turns_due_at = 0.0
        self._effects: list[Effect] = []
        self._kinds: list[type] = []
        self._new_life()

    def _new_life(self) -> None:
        """Start the books of an incarnation: empty."""
        self.outbox = Outbox(self._neighbour_bytes, self._window)
        self.inbox = Inbox(self.mass.layout.shards, self._inbox_bytes, in_order=self.policy.lag == 0)
        #: What others want of our mass, at the next boundary: one ask for each of them and shard.
        self._asks: dict[tuple[int, int], Ask] = {}
        #: The verdicts on what each neighbour, in its present incarnation, has sent.
        self._received: dict[Address, Received] = {}

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
                self._merge_all(now)
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

    def _emit(self, effect: Effect) -> None:
        self._kinds.append(type(effect))
        (self._effects.append if self.sink is None else self.sink)(effect)

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
        self._merge_all(now)
        if not self.policy.exchanges(self.step):
            if self.exchange is not None:
                self._tell(now)
            return
        self._turns_left = max(1, round(self.coding.share * self.mass.layout.shards))
        self._turns_due_at = now
        self._take_turns(now)

    def _take_turns(self, now: float) -> None:
        """Let the next shards take their turns, as many as go at once; the rest are due at once, with a `Tick`."""
        for _ in range(min(self._turns_left, self.at_once or self._turns_left)):
            self._turns_left -= 1
            shard, self._next_shard = self._next_shard, (self._next_shard + 1) % self.mass.layout.shards
            self._take_turn(shard, now)
            if not self._turns_left:
                self._tell(now)
                self._report_slow(now)
                choice = self.coding.step(self._waiting.step_time, len(self.view.out_edges(self.turns[shard] - 1)))
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
        # Peers that wait for their neighbours are as many turns apart as there are links between them, about log n, and
        # as many times that as they may be late.
        apart = (1 + (self.policy.lag or 0)) * len(self.view.members).bit_length()
        if self._furthest[shard] > turn + apart:
            turn = self._furthest[shard]  # further behind than that is slow, or was cut off
        self.turns[shard] = turn + 1
        self._waiting.pushed(shard, turn, now)
        if self.policy.pulls:
            self._pull(shard, turn)
        else:
            self._push(shard, turn, now)
        self._merge_due(shard, now)
        awaited = self.policy.awaited(turn)
        if awaited is not None:
            for rank in self.view.in_neighbours(awaited):
                self._waiting.want(rank, shard, awaited, now, self.settings)

    # Sending

    def _push(self, shard: int, turn: int, now: float) -> None:
        edges = []
        for address, fraction in self._edges(turn):
            if self.view.fenced(address):
                self._send(Fence(self.me, address))
            elif self._backoff.skip(address.rank, shard) or not self._has_budget(address, shard):
                self._pass(address, shard, turn)
            else:
                edges.append((address, fraction))
        weight = self.mass.weights[shard]
        wanted = weight * sum(fraction for _, fraction in edges)
        scale = min(1.0, (weight - self._floor) / wanted) if wanted > 0 else 0.0
        snapshot = None if scale < _WORTHWHILE else self._snapshot(shard)
        for address, fraction in edges:
            if snapshot is None:
                self._pass(address, shard, turn)
            else:
                ask = fraction if self.policy.pairwise else 0.0
                self._dispatch(address, shard, turn, scale * fraction * weight, snapshot, ask, now)
        self._keep_the_rest(shard, snapshot, weight)

    def _keep_the_rest(self, shard: int, snapshot: Snapshot | None, weight: float) -> None:
        """Keep what rounding took off the values that went out; ``weight`` is what was held before."""
        if snapshot is not None and snapshot.payload is not None:
            self.mass.keep_the_rest(shard, snapshot.values, weight - self.mass.weights[shard])

    def _edges(self, turn: int) -> list[tuple[Address, float]]:
        """Return to whom goes which fraction at a turn, by the schedule and the policy."""
        edges = self.view.out_edges(turn)
        if self.policy.fraction is None:
            return edges
        return [(address, self.policy.fraction) for address, _ in edges]

    def _pull(self, shard: int, turn: int) -> None:
        """Ask the neighbours of the turn for mass of theirs. Nobody waits for it, and nobody asks again."""
        for address, fraction in self._edges(turn):
            if not self.view.fenced(address):
                self._send(Pull(self.me, address, turn, shard, fraction))

    def _pass(self, address: Address, shard: int, turn: int) -> None:
        if self.policy.lag is not None:  # otherwise nobody waits
            self._send(Pass(self.me, address, turn, shard))

    def _answer(self, shard: int, ask: Ask, now: float) -> None:
        """Send back the fraction that was asked for, of what we held before merging the parcel."""
        weight = self.mass.weights[shard]
        amount = min(ask.fraction * weight, weight - self._floor)
        if amount < _WORTHWHILE * ask.fraction * weight or self.view.incarnation(ask.to.rank) != ask.to.incarnation:
            return
        if self.view.fenced(ask.to) or not self._has_budget(ask.to, shard):
            return
        snapshot = self._snapshot(shard)
        if snapshot is not None:
            self._dispatch(ask.to, shard, ask.turn, amount, snapshot, 0.0, now)
        self._keep_the_rest(shard, snapshot, weight)

    def _snapshot(self, shard: int, *, whole: bool = False) -> Snapshot | None:
        """Return what may be sent, if anything: everybody would reject NaN and infinity, and they would go for ever."""
        # Who measures the disagreement wants to see it fall below what rounding leaves.
        codec = None if whole or self.measuring else self.coding.codec
        if codec is None:
            snapshot = self.mass.snapshot(shard)
        else:
            snapshot = self.mass.rounded(shard, codec, (self.me.rank, shard, self.turns[shard]))
        if snapshot is None:
            self._emit(events.NotFinite(shard))
        return snapshot

    def _has_budget(self, address: Address, shard: int) -> bool:
        return self.outbox.room(address, shard, self.coding.nbytes(shard))

    def _dispatch(
        self, to: Address, shard: int, turn: int, weight: float, snapshot: Snapshot, ask: float, now: float
    ) -> None:
        self.mass.give(shard, weight)
        self._post(to, shard, turn, weight, snapshot, ask, now)

    def _post(
        self, to: Address, shard: int, turn: int, weight: float, snapshot: Snapshot, ask: float, now: float
    ) -> None:
        """Send mass that is in no other book any more."""
        sequence, (values, seal, payload) = self.outbox.next_sequence(to), snapshot
        codec = "" if payload is None else self.coding.spelled
        parcel = Parcel(self.me, to, sequence, turn, shard, weight, values, ask, seal, payload, codec)
        self.outbox.add(parcel, now, now + self._resend.after(to.rank))
        self._send(parcel)

    def _send(self, message: Message, endpoint: str = "", key: str = "") -> None:
        insist = isinstance(message, Roll | Shown)
        self._emit(events.Send(message.destination, self._codec.encode(message), endpoint, key, insist))

    @property
    def _floor(self) -> float:
        return self.settings.weight_floor * self._fair

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
        for entry in self.outbox:
            if entry.resend_at <= now:
                entry.attempts += 1
                entry.resend_at = now + self._resend.after(entry.parcel.destination.rank, entry.attempts)
                self._send(entry.parcel)

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
            self._let_go(origin)
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

    def _is_absurd(self, turn: int, shard: int) -> bool:
        return self.policy.lag is not None and turn > self.turns[shard] + _TURNS_AHEAD

    def _take_in(self, parcel: Parcel, now: float) -> None:
        received = self._received.setdefault(parcel.origin, Received(self._window))
        verdict = received.verdict(parcel.sequence)
        if verdict is None:
            if not received.fits(parcel.sequence):
                raise Rejected(Reason.WINDOW, f"sequence {parcel.sequence}", parcel.origin.rank)
            self._heard(parcel.origin.rank, parcel.shard, parcel.turn, now)
            verdict = self._has_room(parcel)
            received.add(parcel.sequence, verdict)
            if verdict:
                self.inbox.add(parcel, answer=parcel.ask > 0)
                self._emit(events.Booked(parcel))
                if self._open and self._merges:
                    self._merge_due(parcel.shard, now)
            else:
                self._emit(events.Refused(parcel))
        answer = Ack if verdict else Refusal
        self._send(answer(self.me, parcel.origin, parcel.sequence))

    def _heard(self, rank: int, shard: int, turn: int, now: float) -> None:
        """Take in that a neighbour came to a turn, whether it sent mass or passed."""
        self._waiting.arrived(rank, shard, turn, now)
        if self.policy.lag is not None:
            self._furthest[shard] = max(self._furthest[shard], turn)

    def _has_room(self, parcel: Parcel) -> bool:
        """Whether the parcel may be booked. What is on its way counts as well: it may all come back to us."""
        shard = parcel.shard
        own = self.mass.weights[shard] + self.inbox.weight(shard) + self.outbox.weight(shard)
        weight = own + parcel.weight
        fits = weight <= self.settings.weight_cap * self._fair and self.inbox.room(parcel)
        return fits and self._farewell is None

    def _merge_all(self, now: float) -> None:
        for shard in range(self.mass.layout.shards):
            self._merge_due(shard, now)

    def _merge_due(self, shard: int, now: float) -> None:
        for key in [key for key in self._asks if key[1] == shard]:
            self._answer(shard, self._asks.pop(key), now)
        for pile in self.inbox.due(shard, self.turns[shard]):
            if self.measuring:
                self.gaps[shard] = distance(self.mass.view(shard), pile.values)
            for ask in pile.asks:
                self._answer(shard, ask, now)
            self.mass.merge(shard, pile.values, pile.weight)

    # Answers

    def _acknowledged(self, origin: Address, sequence: int, now: float) -> None:
        entry = self.outbox.remove(origin, sequence)
        if entry is None:
            return
        self._resend.answered(origin.rank, entry.attempts, now - entry.sent_at)
        self.outbox.put_off(origin, sequence, now + self._resend.after(origin.rank))
        self.coding.answered(entry.parcel.nbytes)
        self._backoff.accepted(origin.rank, entry.parcel.shard)
        self._emit(events.Released(entry.parcel))
        self._settle(origin)

    def _refused(self, origin: Address, sequence: int, now: float) -> None:
        entry = self.outbox.remove(origin, sequence)
        if entry is not None:
            self._backoff.refused(origin.rank, entry.parcel.shard)
            if self._farewell is not None:
                self._farewell.refused(entry.parcel.shard)
            self._take_back([entry.parcel], now)
            self._settle(origin)

    def _take_back(self, parcels: Sequence[Parcel], now: float) -> None:
        for parcel in parcels:
            self.inbox.add(parcel, answer=False)
            self._emit(events.TakenBack(parcel))
            if self._open and self._merges:
                self._merge_due(parcel.shard, now)

    # Membership

    def _declare_dead(self, address: Address, now: float) -> None:
        if address.rank == self.me.rank:
            if address.incarnation >= self.me.incarnation:
                self._reincarnate(address.incarnation + 1, now)
            return
        current = self.view.incarnation(address.rank)
        if current is not None and current > address.incarnation:
            return  # old news: it has come back since
        self.view.fence(address)
        self._forget(address.rank)
        self._take_back(self.outbox.remove_all(address.rank), now)

    def _admit(self, address: Address, now: float) -> None:
        """Make sure that the address is a member; what went to its former lives comes back."""
        current = self.view.incarnation(address.rank)
        if self.view.leaving(address):
            return
        if address.rank == self.me.rank or (current is not None and current >= address.incarnation):
            if current == address.incarnation and self.view.fenced(address):
                self._send(Fence(self.me, address))  # it has not heard yet
            return
        self._forget(address.rank)
        self._take_back(self.outbox.remove_all(address.rank), now)
        if current is None:  # it comes with a weight of 1
            self._fair += (1 - self._fair) / (len(self.view.members) + 1)
        self.view.admit(address)
        if self.view.fenced(address):
            self._send(Fence(self.me, address))  # within reach again: the sooner it knows, the less is counted twice

    def _forget(self, rank: int) -> None:
        self._waiting.forget(rank)
        self._backoff.forget(rank)
        self._resend.forget(rank)
        if self._farewell is not None:
            self._farewell.forget(rank)
        for address in [address for address in self._received if address.rank == rank]:
            del self._received[address]

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

    def _let_go(self, address: Address) -> None:
        """Plan without a peer that leaves; what it holds will be the others'."""
        if self.view.incarnation(address.rank) == address.incarnation:
            self.view.leave(address)
            self._fair *= (len(self.view.members) + 1) / len(self.view.members)
            self._waiting.forget(address.rank)
            self._backoff.forget(address.rank)
        self._settle(address)

    def _settle(self, address: Address) -> None:
        """Tell one that leaves if it has answered all that we sent it."""
        if self.view.leaving(address) and not self.outbox.owes(address.rank):
            self._send(Settled(self.me, address))

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
            self._go_on_leaving(self._farewell, now)
            if self._farewell is not None:
                self._depart(now)

    def _new_farewell(self) -> Farewell:
        others = [self.view.address(rank) for rank in self.view.members if rank != self.me.rank]
        # Those who leave as well: mass of theirs may be on its way to us.
        return Farewell([*others, *self.view.departing()], self.mass.layout.shards, self.settings.resend_first)

    def _go_on_leaving(self, farewell: Farewell, now: float) -> None:
        for address in farewell.to_tell(now):
            self._send(Bye(self.me, address))
        stay = [self.view.address(rank) for rank in self.view.members if rank != self.me.rank]
        heirs = [address for address in stay if farewell.has_settled(address)]
        for shard in range(self.mass.layout.shards):
            held = self.mass.weights[shard] > 0 or self.inbox.weight(shard) > 0
            if held and heirs and not self.outbox.weight(shard):
                self._bequeath(farewell, shard, heirs, now)
        if farewell.settled and not len(self.outbox) and (not stay or not self._held()):
            self._depart(now)

    def _held(self) -> float:
        return sum(self.mass.weights) + sum(pile.weight for pile in self.inbox)

    def _bequeath(self, farewell: Farewell, shard: int, heirs: Sequence[Address], now: float) -> None:
        """Offer mass of a shard to one of those who stay: what we hold, then what we have not merged, pile by pile."""
        heir = farewell.heir(shard, heirs, now)
        if heir is None or self.view.fenced(heir) or not self._has_budget(heir, shard):
            return
        weight, turn = self.mass.weights[shard], self.turns[shard]
        if weight > 0:
            snapshot = self._snapshot(shard, whole=True)  # what rounding took off would stay with nobody
            self.mass.weights[shard] = 0.0
            if snapshot is not None:  # otherwise it is not finite, and nobody would take it
                self._post(heir, shard, turn, weight, snapshot, 0.0, now)
        elif (pile := self.inbox.take(shard)) is not None:
            self._post(heir, shard, turn, pile.weight, Snapshot(pile.values, inspect(pile.values).seal), 0.0, now)
        if not self.mass.weights[shard] and not self.inbox.weight(shard):
            farewell.given(shard)

    def _depart(self, now: float) -> None:
        """Be gone, with or without all mass handed over."""
        held = self._held() + sum(entry.parcel.weight for entry in self.outbox)
        self._farewell = None
        self._gone = True
        if self.membership is not None:
            self._believe(self.membership.handle(members.Leave(), now), now)
        self._emit(events.Left(held))

    # Checks

    def history(self) -> list[str]:
        """Return the recent events, oldest first, as an `InvariantError` shows them; addresses as rank#incarnation."""
        lines = []
        for now, what, details in self._history:
            said = [one.__name__ if isinstance(one, type) else f"{one.rank}#{one.incarnation}" for one in details]
            lines.append(f"{now:.6f} {what.__name__} {' '.join(said)}")
        return lines

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
