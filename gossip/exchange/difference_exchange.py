"""Differences: neighbours tell each other how far they are from what the other knows, and are drawn together.

What each end knows of its edges is for `gossip.exchange.differences` to know.
"""

from __future__ import annotations

from gossip import events
from gossip.codecs import Unencodable
from gossip.codecs.difference_codec import DifferenceCodec
from gossip.exchange.differences import Choco, Draw
from gossip.exchange.exchange import Exchange
from gossip.exchange.sender import Sender
from gossip.wire.messages import Address, Parcel

__all__ = ["DifferenceExchange"]


class DifferenceExchange(Exchange):
    """CHOCO's exchange. Differences carry no mass."""

    def __init__(self, sender: Sender, codec: DifferenceCodec) -> None:
        self.choco = Choco(codec)
        super().__init__(sender)

    def new_life(self) -> None:
        """Forget all edges."""
        self.choco.new_life()

    def forget(self, rank: int) -> None:
        """Forget the edges to a neighbour."""
        self.choco.forget(rank)

    def take_turn(self, shard: int, turn: int, now: float) -> None:
        """Tell the neighbours of the turn a difference, unless we have told more often than they have."""
        state, out = self.state, self.out
        edges = []
        for address, fraction in state.edges(turn):
            if state.view.fenced(address):
                out.fence(address)
            elif out.fits(address, shard) and self.choco.may_tell(address, shard):
                edges.append((address, out.coding.gamma * fraction))
            else:
                out.pass_turn(address, shard, turn)
        try:
            told = self.choco.tell(edges, shard, state.mass.view(shard)) if edges else []
        except Unencodable:
            out.outlet.emit(events.NotFinite(shard))
            for address, _ in edges:
                out.pass_turn(address, shard, turn)
            return
        for (address, gain), (snapshot, draw) in zip(edges, told, strict=True):
            out.post(address, shard, turn, 0.0, snapshot, gain, now)
            self._draw(address, shard, draw)

    def check(self, parcel: Parcel) -> None:
        """Reject a difference of a round that no honest peer can be at."""
        if parcel.is_difference:
            self.choco.check(parcel)

    def book(self, parcel: Parcel) -> None:
        """Take in a difference, and what its round moves."""
        if not parcel.is_difference:
            super().book(parcel)
        else:
            self._draw(parcel.origin, parcel.shard, self.choco.hear(parcel, self.state.mass.view(parcel.shard)))

    def take_back(self, parcel: Parcel) -> None:
        """Drop the edge of a difference that will never be booked, and undo what its round has moved."""
        if not parcel.is_difference:
            super().take_back(parcel)
        else:
            self._draw(parcel.destination, parcel.shard, self.choco.take_back(parcel), undo=True)

    def _draw(self, to: Address, shard: int, draw: Draw | None, *, undo: bool = False) -> None:
        """Let wait what a round moves our x by, or the reverse of it."""
        if draw is not None:
            amount = -draw.amount if undo else draw.amount
            self.out.books.inbox.add(Parcel(to, self.state.me, 0, 0, shard, 0.0, amount), answer=False)
            self.out.outlet.emit(events.Drawn(to, shard, draw.round, draw.amount, undo))
