"""How one peer's mass moves: a shard takes its turn; what arrives is booked, merged and answered, or refused.

No sinks: a parcel that would lift its receiver above `weight_cap` is refused. The cap, like the floor, is relative to
the *fair* weight: 1, and more where peers that left have handed their weight over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gossip import events
from gossip.books.inbox import Ask
from gossip.books.mass import distance
from gossip.errors import Reason, Rejected
from gossip.exchange.push import WORTHWHILE, Push
from gossip.exchange.sender import IN_VAIN, Sender
from gossip.exchange.ways import way_of
from gossip.wire.messages import Ack, Address, Parcel, Proposal, Pull, Refusal

__all__ = ["Traffic"]

#: The part of a shard's weight that stays, however much others ask for.
_KEPT = 0.01
#: Nobody honest is further ahead than this. Turns are followed, so a lie must not carry us out of their range.
_TURNS_AHEAD = 1_000_000


class Traffic:
    """All that changes the books of one peer."""

    def __init__(self, sender: Sender, merges: Callable[[], bool]) -> None:
        """Begin with empty books.

        Args:
            sender: sends for this peer.
            merges: says whether what arrives now is merged at once.
        """
        self.out = sender
        self.state = sender.state
        self.books = sender.books
        #: The way in which the algorithm exchanges values.
        self.way = way_of(sender)
        #: The way of a peer that only measures: whole shards.
        self._whole = self.way if self.state.policy.pulls else Push(sender)
        self._merges = merges
        self._patience = sender.patience

    def new_life(self) -> None:
        """Start the books of an incarnation: empty."""
        self.books.new_life(self._patience.lag == 0)
        self.way.new_life()
        self._whole.new_life()

    def forget(self, rank: int, now: float) -> None:
        """Unlearn all about a life that is over; what went to it comes back."""
        self.out.forget(rank)
        self.books.forget(rank)
        self.take_back(self.books.outbox.remove_all(rank), now)
        self.way.forget(rank)

    # Sending

    def take_turn(self, shard: int, turn: int, step: int, now: float) -> None:
        """Let a shard exchange with the neighbours of a turn, and merge what has arrived of it."""
        state, coding = self.state, self.out.coding
        if not state.measuring and coding.leaves_out(shard, state.me.rank, step):
            for address, _ in state.view.out_edges(turn):
                self.out.pass_turn(address, shard, turn)
        else:
            (self._whole if state.measuring else self.way).take_turn(shard, turn, now)
        self.merge_due(shard, now)

    def _answer(self, shard: int, asks: Sequence[Ask], now: float) -> None:
        """Send back the fractions that were asked for, each of what we held before all of these and before merging."""
        state, out = self.state, self.out
        asking = [ask for ask in {ask.to: ask for ask in asks}.values() if state.deals_with(ask.to)]
        able = [ask for ask in asking if out.fits(ask.to, shard)]
        held = state.mass.weights[shard]
        wanted = held * sum(ask.fraction for ask in able)
        # Less than wanted if more ask at once than there are neighbours in a turn. Something stays in any case: what
        # rounding takes off is kept by it.
        spare = held - max(state.floor, _KEPT * held)
        snapshot = out.snapshot(shard) if wanted and spare >= WORTHWHILE * wanted else None
        for ask in asking:
            if snapshot is None or ask not in able:
                out.pass_turn(ask.to, shard, ask.turn)
            else:
                part = ask.fraction * held
                out.dispatch(ask.to, shard, ask.turn, min(part, spare * (part / wanted)), snapshot, 0.0, now)
        out.keep_the_rest(shard, snapshot, held)

    # Receiving

    def is_absurd(self, turn: int, shard: int) -> bool:
        """Whether a parcel would wait for a turn that never comes."""
        return self._patience.lag is not None and turn > self.state.turns[shard] + _TURNS_AHEAD

    def take_in(self, parcel: Parcel, now: float) -> None:
        """Give a parcel its verdict: booked or refused, once and for ever; and say so."""
        outlet = self.out.outlet
        received = self.books.received_from(parcel.origin)
        verdict = received.verdict(parcel.sequence)
        if verdict is None:
            if not received.fits(parcel.sequence):
                raise Rejected(
                    Reason.WINDOW,
                    f"Parcel: sequence {parcel.sequence} is further ahead than any honest peer can be",
                    parcel.origin.rank,
                )
            self.way.check(parcel)
            self.heard(parcel.origin.rank, parcel.shard, parcel.turn, now)
            verdict = self._has_room(parcel)
            received.add(parcel.sequence, verdict)
            if verdict:
                self.way.book(parcel)
                outlet.emit(events.Booked(parcel))
                self._merge_if_open(parcel.shard, now)
            else:
                outlet.emit(events.Refused(parcel))
        elif received.repeated() % IN_VAIN == 0:
            outlet.emit(events.Unanswered(parcel.origin))
        answer = Ack if verdict else Refusal
        outlet.send(answer(self.state.me, parcel.origin, parcel.sequence))

    def heard(self, rank: int, shard: int, turn: int, now: float) -> None:
        """Take in that a neighbour came to a turn, whether it sent mass or passed."""
        state = self.state
        self._patience.arrived(rank, shard, turn, now)
        if state.policy.follows_turns and turn <= state.turns[shard] + _TURNS_AHEAD:
            state.furthest[shard] = max(state.furthest[shard], turn)

    def asked(self, pull: Pull, now: float) -> None:
        """Answer a pull at the next boundary: the last ask of each peer and shard counts."""
        self.books.asks[pull.origin.rank, pull.shard] = Ask(pull.origin, pull.turn, pull.fraction)
        self._merge_if_open(pull.shard, now)

    def offered(self, proposal: Proposal, now: float) -> None:
        """Answer an offer at the next boundary, if this peer exchanges that way."""
        if self.way.hear(proposal):
            self._merge_if_open(proposal.shard, now)

    def _has_room(self, parcel: Parcel) -> bool:
        """Whether the parcel may be booked."""
        state, shard = self.state, parcel.shard
        if state.leaving or not (parcel.is_difference or self.books.inbox.room(parcel)) or shard in state.diverged:
            return False
        # A parcel without weight lifts nobody, whatever is held.
        own = self.books.own_weight(shard)
        return not parcel.weight or own + parcel.weight <= state.settings.weight_cap * state.fair

    # Merging

    def merge_all(self, now: float, owed: bool = False) -> None:
        """Merge what has arrived and is due, of all shards; see `merge_due`."""
        for shard in range(self.state.mass.layout.shards):
            self.merge_due(shard, now, owed)

    def merge_due(self, shard: int, now: float, owed: bool = False) -> None:
        """Merge what has arrived and is due; ``owed``: but for what asks for something in return."""
        state, asks = self.state, self.books.asks
        for key in [key for key in asks if key[1] == shard]:
            self._answer(shard, [asks.pop(key)], now)
        for pile in self.books.inbox.due(shard, state.turns[shard], owed):
            if not pile.weight:
                state.mass.move(shard, pile.values)
                continue
            if state.measuring:
                gap = distance(state.mass.view(shard), pile.values)
                state.gaps[shard] = max(state.gaps.get(shard, 0.0), gap)
            # Elastic averaging answers all at once, as its centre does. Otherwise those of one pile that could not be
            # kept apart get each of what the ones before left.
            for answered in [[ask] for ask in pile.asks] if state.policy.fraction is None else [pile.asks]:
                self._answer(shard, answered, now)
            state.mass.merge(shard, pile.values, pile.weight)
        self.way.merged(shard, now)

    def _merge_if_open(self, shard: int, now: float) -> None:
        if self._merges():
            self.merge_due(shard, now)

    # What comes back

    def refused(self, origin: Address, sequence: int, now: float) -> int | None:
        """Take back a parcel that was refused, and return its shard; None: it is not in the book any more."""
        entry = self.out.refused(origin, sequence)
        if entry is None:
            return None
        self.take_back([entry.parcel], now)
        self.out.settle(origin)
        return entry.parcel.shard

    def take_back(self, parcels: Sequence[Parcel], now: float) -> None:
        """Take back parcels that nobody will book any more."""
        for parcel in parcels:
            self.way.take_back(parcel)
            self.out.outlet.emit(events.TakenBack(parcel))
            self._merge_if_open(parcel.shard, now)
