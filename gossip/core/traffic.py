"""How one peer's mass moves: what it pushes, answers, books, takes back and merges.

Mass is always in exactly one book: the `Mass` held, the `Inbox` (arrived, not merged), or the `Outbox` (sent, not
answered). A parcel is answered once and for ever: booked (the sender forgets it) or refused (the sender takes it back).

No sinks: a push leaves its sender at least `weight_floor`, a parcel that would lift its receiver above
`weight_cap` is refused, and after a refusal the sender skips 1, 2, 4, ... turns to that neighbour. Both are relative to
the *fair* weight: 1, and more where those who left have handed theirs over.

The first of the three layers of a core; `gossip.core.belonging` is the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gossip import events
from gossip.books.inbox import Ask, Inbox
from gossip.books.ledger import Outbox, Received
from gossip.books.mass import Mass, Snapshot, distance
from gossip.codecs import Unencodable
from gossip.core.farewell import Farewell
from gossip.core.resend import Resend
from gossip.core.view import Roster, View
from gossip.core.waiting import Waiting
from gossip.errors import Reason, Rejected
from gossip.events import Effect
from gossip.exchange.backoff import Backoff
from gossip.exchange.coding import Coding
from gossip.exchange.differences import Choco, Draw
from gossip.exchange.sparse_pairs import Pairs
from gossip.policies.policy import Policy
from gossip.settings import Settings
from gossip.values.blocks import is_finite
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Ack, Address, Fence, Message, Parcel, Pass, Pull, Refusal, Roll, Settled, Shown

__all__ = ["Traffic"]

#: A push that the floor cuts to less than this part of the scheduled fraction is not worth its bytes.
_WORTHWHILE = 0.25
#: The part of a shard's weight that stays, however much others ask for.
_KEPT = 0.01
#: A parcel that was sent so often and not answered, or so many in a row that were answered and come again, are a sign
#: that what is sent does not arrive.
_IN_VAIN = 4
#: Nobody honest is further ahead than this. Turns are followed, so a lie must not carry us out of their range.
_TURNS_AHEAD = 1_000_000


class Traffic:
    """The books of one peer, and all that changes them."""

    def __init__(
        self,
        me: Address,
        mass: Mass,
        roster: Roster,
        policy: Policy,
        settings: Settings,
        turns: Sequence[int] | None,
    ) -> None:
        """Open the books; see `gossip.core.core.Core` for the arguments."""
        layout = mass.layout
        self.me = me
        self.mass = mass
        self.policy = policy
        self.settings = settings
        known = roster.members.get(me.rank) == me.incarnation
        self.view = View(me.rank, roster if known else roster.changed(me.rank, me.incarnation))
        #: The next turn of each shard.
        self.turns = [0] * layout.shards if turns is None else list(turns)
        #: While `measuring`, how far the last mass that was merged into each shard lay from our own; see `distance`.
        self.measuring = False
        self.gaps: dict[int, float] = {}
        self.coding = Coding(settings.compress, settings.share, layout, policy)
        #: What is exchanged instead of mass where only some values are; None: mass it is.
        self._pairs = Pairs(self.coding.pairs, settings.resend_ceiling) if self.coding.pairs else None
        #: What neighbours know of each other where differences are told instead of mass.
        self._choco = Choco(self.coding.differences) if self.coding.differences else None
        self._codec = WireCodec(settings.run, layout, settings.compress, self.coding.differences)
        self._window = 4 * layout.shards + 64
        self._neighbour_bytes = settings.neighbour_bytes or 2 * layout.total_bytes
        self._inbox_bytes = settings.inbox_bytes or (3 if policy.pairwise else 2) * layout.total_bytes
        #: Whether the values are the core's: from StepFinished to Proceed, or from Rest to Resume.
        self._open = False
        #: Whether what arrives while the values are the core's is merged at once.
        self._merges = True
        #: The latest turn of each shard that anybody is known to have pushed; stays -1 where turns do not matter.
        self._furthest = [-1] * layout.shards
        self._waiting = Waiting(layout.shards, policy.lag_at(1), policy.every)
        #: What the average peer holds of a shard, by what is known of who left and who joined.
        self._fair = 1.0
        #: The shards that were NaN or infinity when last looked at: what is merged into them is lost.
        self._diverged: set[int] = set()
        #: What is left to do for one that leaves; it takes nothing in any more.
        self._farewell: Farewell | None = None
        self._backoff = Backoff()
        self._resend = Resend(settings.resend_first, settings.resend_floor, settings.resend_ceiling)
        #: Types and addresses only: a frame kept here would keep its memory.
        self._history: deque[tuple[float, type, Sequence[Address | type]]] = deque(maxlen=64)
        #: Carries out each effect as it arises, so that the first parcel leaves before the second is copied. It must
        #: not call back. Without one, `handle` returns them.
        self.sink: Callable[[Effect], None] | None = None
        self._effects: list[Effect] = []
        self._kinds: list[type] = []
        self._new_life()

    def _new_life(self) -> None:
        """Start the books of an incarnation: empty."""
        self.outbox = Outbox(self._neighbour_bytes, self._window)
        # Elastic averaging answers all at once, as its centre does; otherwise one pair is averaged after the other.
        piles = 0 if self.policy.fraction is not None else self._inbox_bytes // self.mass.layout.total_bytes
        self.inbox = Inbox(self.mass.layout.shards, self._inbox_bytes, self._waiting.lag == 0, piles)
        #: What others want of our mass, at the next boundary: one ask for each of them and shard.
        self._asks: dict[tuple[int, int], Ask] = {}
        #: When a shard of which there is nothing to give may be asked for again.
        self._pull_at: dict[int, float] = {}
        #: The verdicts on what each neighbour, in its present incarnation, has sent.
        self._received: dict[Address, Received] = {}
        if self._pairs is not None:
            self._pairs.new_life()
        if self._choco is not None:
            self._choco.new_life()

    def _emit(self, effect: Effect) -> None:
        self._kinds.append(type(effect))
        (self._effects.append if self.sink is None else self.sink)(effect)

    def _send(self, message: Message, endpoint: str = "", key: str = "") -> None:
        insist = isinstance(message, Roll | Shown)
        self._emit(events.Send(message.destination, self._codec.encode(message), endpoint, key, insist))

    # Sending

    def _push(self, shard: int, turn: int, now: float) -> None:
        edges: list[tuple[Address, float]] = []
        planned = self._edges(turn)
        degree = None if self.policy.fraction is None else len(planned)  # an elastic hub is a centre: its leaves begin
        for address, fraction in planned:
            if self.view.fenced(address):
                self._send(Fence(self.me, address))
            elif self.policy.pairwise and self.view.is_asked(address.rank, turn, degree):
                continue  # once for each pair and turn: it begins, and we answer
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
                if self.policy.pairwise and scale < _WORTHWHILE:
                    self._ask_instead(address, shard, turn, fraction, now)
            else:
                ask = fraction if self.policy.pairwise else 0.0
                self._dispatch(address, shard, turn, scale * fraction * weight, snapshot, ask, now)
        self._keep_the_rest(shard, snapshot, weight)

    def _ask_instead(self, to: Address, shard: int, turn: int, fraction: float, now: float) -> None:
        """Ask for mass where there is none to give, once in a round trip, unless some is on its way to be answered.

        Nobody might ever give us any otherwise, and one that believes us dead would not hear that we live.
        """
        if not self.outbox.weight(shard) and now >= self._pull_at.get(shard, now):
            self._pull_at[shard] = now + self._resend.after(to.rank)
            self._send(Pull(self.me, to, turn, shard, fraction))

    def _offer(self, pairs: Pairs, shard: int, turn: int, now: float) -> None:
        """Offer some values to the neighbours of the turn."""
        edges = self._edges(turn)
        # Where there are several, not always the same one first: what it is offered the others are not.
        for address, fraction in edges[turn % len(edges) :] + edges[: turn % len(edges)] if edges else ():
            if self.view.fenced(address):
                self._send(Fence(self.me, address))
            elif not self._backoff.skip(address.rank, shard) and self._has_budget(address, shard):
                weight, values = self.mass.weights[shard], self.mass.view(shard)
                try:
                    proposal = pairs.offer(self.me, address, turn, shard, weight, fraction, values, now)
                except Unencodable:
                    self._emit(events.NotFinite(shard))
                    return
                if proposal is not None:
                    self._send(proposal)

    def _tell_differences(self, choco: Choco, shard: int, turn: int, now: float) -> None:
        """Tell the neighbours of the turn how far we are from what they know, if they have told as often as we."""
        edges = []
        for address, fraction in self._edges(turn):
            if self.view.fenced(address):
                self._send(Fence(self.me, address))
            elif self._has_budget(address, shard) and choco.may_tell(address, shard):
                edges.append((address, self.coding.gamma * fraction))
            else:
                self._pass(address, shard, turn)
        try:
            told = choco.tell(edges, shard, self.mass.view(shard)) if edges else []
        except Unencodable:
            self._emit(events.NotFinite(shard))
            for address, _ in edges:
                self._pass(address, shard, turn)
            return
        for (address, gain), (snapshot, draw) in zip(edges, told, strict=True):
            self._post(address, shard, turn, 0.0, snapshot, gain, now)
            self._draw(address, shard, draw)

    def _draw(self, to: Address, shard: int, draw: Draw | None, *, undo: bool = False) -> None:
        """Let wait what a round moves our x by, or the reverse of it."""
        if draw is not None:
            amount = -draw.amount if undo else draw.amount
            self.inbox.add(Parcel(to, self.me, 0, 0, shard, 0.0, amount), answer=False)
            self._emit(events.Drawn(to, shard, draw.round, draw.amount, undo))

    def _move(self, pairs: Pairs, shard: int, now: float) -> None:
        """Answer what others offer of a shard, those to whom nothing of it is on its way."""
        for proposal in pairs.heard(shard):
            to = proposal.origin
            if self._farewell is not None or self.view.incarnation(to.rank) != to.incarnation or self.view.fenced(to):
                pairs.drop(proposal)
            elif self._has_budget(to, shard):
                pairs.drop(proposal)
                try:
                    moved = pairs.move(proposal, self.mass.view(shard), self.mass.weights[shard], now)
                except Unencodable:
                    if not is_finite(self.mass.view(shard)):
                        self._emit(events.NotFinite(shard))
                    continue
                self.mass.move(shard, moved.values, -1)
                self._post(to, shard, proposal.turn, 0.0, moved, 0.0, now)

    def _keep_the_rest(self, shard: int, snapshot: Snapshot | None, weight: float) -> None:
        """Keep what rounding took off the values that went out; ``weight`` is what was held before."""
        if snapshot is not None and snapshot.payload is not None:
            self.mass.keep_the_rest(shard, snapshot.values, weight - self.mass.weights[shard])

    def _edges(self, turn: int) -> list[tuple[Address, float]]:
        """Return to whom goes which fraction at a turn, by the schedule and the policy."""
        edges = self.view.out_edges(turn)
        if self.policy.fraction is None or self.measuring:  # who wants to agree is not to stray
            return edges
        return [(address, self.policy.fraction) for address, _ in edges]

    def _pull(self, shard: int, turn: int) -> None:
        """Ask the neighbours of the turn for mass of theirs. Nobody waits for it, and nobody asks again."""
        for address, fraction in self._edges(turn):
            if not self.view.fenced(address):
                self._send(Pull(self.me, address, turn, shard, fraction))

    def _pass(self, address: Address, shard: int, turn: int) -> None:
        if self._waiting.lag is not None:  # otherwise nobody waits
            self._send(Pass(self.me, address, turn, shard))
            if self.policy.pairwise:  # who is not asked does not answer
                self._waiting.excuse(address.rank, shard, turn)

    def _answer(self, shard: int, asks: Sequence[Ask], now: float) -> None:
        """Send back the fractions that were asked for, each of what we held before all of these and before merging."""
        asking = [ask for ask in {ask.to: ask for ask in asks}.values() if self._is_dealt_with(ask.to)]
        able = [ask for ask in asking if self._has_budget(ask.to, shard)]
        held = self.mass.weights[shard]
        wanted = held * sum(ask.fraction for ask in able)
        # Less than wanted if more ask at once than there are neighbours in a turn. Something stays in any case: what
        # rounding takes off is kept by it.
        spare = held - max(self._floor, _KEPT * held)
        snapshot = self._snapshot(shard) if wanted and spare >= _WORTHWHILE * wanted else None
        for ask in asking:
            if snapshot is None or ask not in able:
                self._pass(ask.to, shard, ask.turn)
            else:
                part = ask.fraction * held
                self._dispatch(ask.to, shard, ask.turn, min(part, spare * (part / wanted)), snapshot, 0.0, now)
        self._keep_the_rest(shard, snapshot, held)

    def _is_dealt_with(self, to: Address) -> bool:
        return self.view.incarnation(to.rank) == to.incarnation and not self.view.fenced(to)

    def _snapshot(self, shard: int, *, whole: bool = False) -> Snapshot | None:
        """Return what may be sent, if anything: everybody would reject NaN and infinity, and they would go for ever."""
        # Who measures the disagreement wants to see it fall below what rounding leaves.
        codec = None if whole or self.measuring else self.coding.codec
        if codec is None:
            snapshot = self.mass.snapshot(shard)
        else:
            snapshot = self.mass.rounded(shard, codec, (self.me.rank, shard, self.turns[shard]))
        if snapshot is None:
            self._diverged.add(shard)
            self._emit(events.NotFinite(shard))
        else:
            self._diverged.discard(shard)
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

    @property
    def _floor(self) -> float:
        return self.settings.weight_floor * self._fair

    def _resend_due(self, now: float) -> None:
        """Send again what was not answered in time."""
        for entry in self.outbox:
            if entry.resend_at <= now:
                entry.attempts += 1
                entry.resend_at = now + self._resend.after(entry.parcel.destination.rank, entry.attempts)
                self._send(entry.parcel)
                if entry.attempts % _IN_VAIN == 0:
                    self._emit(events.Unanswered(entry.parcel.destination))

    def _is_absurd(self, turn: int, shard: int) -> bool:
        """Whether a parcel would wait for a turn that never comes."""
        return self._waiting.lag is not None and turn > self.turns[shard] + _TURNS_AHEAD

    # Receiving

    def _take_in(self, parcel: Parcel, now: float) -> None:
        received = self._received.setdefault(parcel.origin, Received(self._window))
        verdict = received.verdict(parcel.sequence)
        if verdict is None:
            if not received.fits(parcel.sequence):
                raise Rejected(Reason.WINDOW, f"sequence {parcel.sequence}", parcel.origin.rank)
            if parcel.is_difference and self._choco is not None:
                self._choco.check(parcel)
            self._heard(parcel.origin.rank, parcel.shard, parcel.turn, now)
            verdict = self._has_room(parcel)
            received.add(parcel.sequence, verdict)
            if verdict:
                if parcel.is_difference and self._choco is not None:
                    heard = self._choco.hear(parcel, self.mass.view(parcel.shard))
                    self._draw(parcel.origin, parcel.shard, heard)
                else:
                    self.inbox.add(parcel, answer=parcel.ask > 0)
                if self._pairs is not None and not parcel.weight:
                    self._pairs.answered(parcel)
                self._emit(events.Booked(parcel))
                if self._open and self._merges:
                    self._merge_due(parcel.shard, now)
            else:
                self._emit(events.Refused(parcel))
        elif received.repeated() % _IN_VAIN == 0:
            self._emit(events.Unanswered(parcel.origin))
        answer = Ack if verdict else Refusal
        self._send(answer(self.me, parcel.origin, parcel.sequence))

    def _heard(self, rank: int, shard: int, turn: int, now: float) -> None:
        """Take in that a neighbour came to a turn, whether it sent mass or passed."""
        self._waiting.arrived(rank, shard, turn, now)
        if self.policy.follows_turns and turn <= self.turns[shard] + _TURNS_AHEAD:
            self._furthest[shard] = max(self._furthest[shard], turn)

    def _has_room(self, parcel: Parcel) -> bool:
        """Whether the parcel may be booked. What is on its way counts as well: it may all come back to us."""
        if self._farewell is not None or not (parcel.is_difference or self.inbox.room(parcel)):
            return False
        shard = parcel.shard
        if shard in self._diverged:
            return False
        own = self.mass.weights[shard] + self.inbox.weight(shard) + self.outbox.weight(shard)
        # What has no weight lifts nobody, whatever is held.
        return not parcel.weight or own + parcel.weight <= self.settings.weight_cap * self._fair

    def _merge_all(self, now: float, owed: bool = False) -> None:
        for shard in range(self.mass.layout.shards):
            self._merge_due(shard, now, owed)

    def _merge_due(self, shard: int, now: float, owed: bool = False) -> None:
        """Merge what has arrived and its turn has come; ``owed``: but for what asks for something in return."""
        for key in [key for key in self._asks if key[1] == shard]:
            self._answer(shard, [self._asks.pop(key)], now)
        for pile in self.inbox.due(shard, self.turns[shard], owed):
            if not pile.weight:
                self.mass.move(shard, pile.values)
                continue
            if self.measuring:
                self.gaps[shard] = max(self.gaps.get(shard, 0.0), distance(self.mass.view(shard), pile.values))
            # Those of one pile for which there was no other one get each of what the ones before left.
            for asks in [[ask] for ask in pile.asks] if self.policy.fraction is None else [pile.asks]:
                self._answer(shard, asks, now)
            self.mass.merge(shard, pile.values, pile.weight)
        if self._pairs is not None:
            self._move(self._pairs, shard, now)

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
            if parcel.is_difference and self._choco is not None:
                self._draw(parcel.destination, parcel.shard, self._choco.take_back(parcel), undo=True)
            else:
                self.inbox.add(parcel, answer=False)
            self._emit(events.TakenBack(parcel))
            if self._open and self._merges:
                self._merge_due(parcel.shard, now)

    def _settle(self, address: Address) -> None:
        """Tell one that leaves if it has answered all that we sent it."""
        if self.view.leaving(address) and not self.outbox.owes(address.rank):
            self._send(Settled(self.me, address))

    def _held(self) -> float:
        return sum(self.mass.weights) + sum(pile.weight for pile in self.inbox)

    def history(self) -> list[str]:
        """Return the recent events, oldest first, as an `InvariantError` shows them; addresses as rank#incarnation."""
        lines = []
        for now, what, details in self._history:
            said = [one.__name__ if isinstance(one, type) else f"{one.rank}#{one.incarnation}" for one in details]
            lines.append(f"{now:.6f} {what.__name__} {' '.join(said)}")
        return lines
