"""What one peer sends of its mass: copied, booked as sent, sent again, acknowledged.

No sinks: a push leaves its sender at least `weight_floor`, and after a refusal the sender skips 1, 2, 4, ... turns to
that neighbour.
"""

from __future__ import annotations

from gossip import events
from gossip.books.books import Books
from gossip.books.ledger import Entry
from gossip.books.mass import ShardCopy
from gossip.exchange.backoff import Backoff
from gossip.exchange.coding import Coding
from gossip.exchange.outlet import Outlet
from gossip.exchange.patience import Waiting
from gossip.exchange.peer_state import PeerState
from gossip.exchange.resend import Resend
from gossip.wire.messages import Address, Fence, Parcel, Pass, Settled

__all__ = ["IN_VAIN", "Sender"]

#: A parcel that was sent this often without an answer, or this many parcels in a row that were answered and come again,
#: are a sign that what is sent does not arrive.
IN_VAIN = 4


class Sender:
    """Sends mass, and keeps the book of it."""

    def __init__(self, state: PeerState, books: Books, coding: Coding, patience: Waiting, outlet: Outlet) -> None:
        self.state = state
        self.books = books
        self.coding = coding
        self.patience = patience
        self.outlet = outlet
        settings = state.settings
        self.backoff = Backoff()
        self.resend = Resend(settings.resend_first, settings.resend_floor, settings.resend_ceiling)

    # Before anything is sent

    def fits(self, address: Address, shard: int) -> bool:
        """Whether a parcel of a shard may be sent to a neighbour now."""
        return self.books.outbox.room(address, shard, self.coding.nbytes(shard))

    def fence(self, address: Address) -> None:
        """Tell an incarnation that it was declared dead here."""
        self.outlet.send(Fence(self.state.me, address))

    def pass_turn(self, address: Address, shard: int, turn: int) -> None:
        """Tell a neighbour that nothing of a shard comes at a turn, if anybody waits for it."""
        if self.patience.lag is not None:
            self.outlet.send(Pass(self.state.me, address, turn, shard))
            if self.state.policy.pairwise:  # a neighbour that is not asked does not answer
                self.patience.excuse(address.rank, shard, turn)

    def snapshot(self, shard: int, *, whole: bool = False) -> ShardCopy | None:
        """Return what may be sent of a shard; None where values are not finite: everybody would reject them."""
        # A peer that measures the disagreement wants to see it fall below what rounding leaves.
        state = self.state
        codec = None if whole or state.measuring else self.coding.codec
        if codec is None:
            snapshot = state.mass.snapshot(shard)
        else:
            snapshot = state.mass.rounded(shard, codec, (state.me.rank, shard, state.turns[shard]))
        if snapshot is None:
            state.diverged.add(shard)
            self.outlet.emit(events.NotFinite(shard))
        else:
            state.diverged.discard(shard)
        return snapshot

    # Sending

    def dispatch(
        self, to: Address, shard: int, turn: int, weight: float, snapshot: ShardCopy, ask: float, now: float
    ) -> None:
        """Take weight out of the mass that is held, and send it."""
        self.state.mass.give(shard, weight)
        self.post(to, shard, turn, weight, snapshot, ask, now)

    def post(
        self, to: Address, shard: int, turn: int, weight: float, snapshot: ShardCopy, ask: float, now: float
    ) -> None:
        """Send mass that is in no other book any more."""
        outbox = self.books.outbox
        sequence, (values, seal, payload) = outbox.next_sequence(to), snapshot
        codec = "" if payload is None else self.coding.spelled
        parcel = Parcel(self.state.me, to, sequence, turn, shard, weight, values, ask, seal, payload, codec)
        outbox.add(parcel, now, now + self.resend.after(to.rank))
        self.outlet.send(parcel)

    def keep_the_rest(self, shard: int, snapshot: ShardCopy | None, weight: float) -> None:
        """Keep what rounding took off the values that went out; ``weight`` is what was held before."""
        mass = self.state.mass
        if snapshot is not None and snapshot.payload is not None:
            mass.keep_the_rest(shard, snapshot.values, weight - mass.weights[shard])

    def resend_due(self, now: float) -> None:
        """Send again what was not answered in time."""
        for entry in self.books.outbox:
            if entry.resend_at <= now:
                entry.attempts += 1
                entry.resend_at = now + self.resend.after(entry.parcel.destination.rank, entry.attempts)
                self.outlet.send(entry.parcel)
                if entry.attempts % IN_VAIN == 0:
                    self.outlet.emit(events.Unanswered(entry.parcel.destination))

    # Answers

    def acknowledged(self, origin: Address, sequence: int, now: float) -> None:
        """Forget a parcel that its receiver has booked."""
        entry = self.books.outbox.remove(origin, sequence)
        if entry is None:
            return
        self.resend.answered(origin.rank, entry.attempts, now - entry.sent_at)
        self.books.outbox.put_off(origin, sequence, now + self.resend.after(origin.rank))
        self.coding.answered(entry.parcel.nbytes)
        self.backoff.accepted(origin.rank, entry.parcel.shard)
        self.outlet.emit(events.Released(entry.parcel))
        self.settle(origin)

    def refused(self, origin: Address, sequence: int) -> Entry | None:
        """Take a parcel that was refused out of the book, and leave its receiver alone for a while."""
        entry = self.books.outbox.remove(origin, sequence)
        if entry is not None:
            self.backoff.refused(origin.rank, entry.parcel.shard)
        return entry

    def settle(self, address: Address) -> None:
        """Tell a peer that leaves once it has answered all that we sent to it."""
        if self.state.view.leaving(address) and not self.books.outbox.owes(address.rank):
            self.outlet.send(Settled(self.state.me, address))

    def forget(self, rank: int) -> None:
        """Unlearn the ways of a peer whose life is over."""
        self.backoff.forget(rank)
        self.resend.forget(rank)
