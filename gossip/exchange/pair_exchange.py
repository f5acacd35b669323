"""Sparse pairs: some values of a shard are offered, and both ends move towards each other there.

What is offered and what is moved is for `gossip.exchange.sparse_pairs` to know.
"""

from __future__ import annotations

from gossip import events
from gossip.codecs import Unencodable
from gossip.codecs.pair_coding import PairCoding
from gossip.exchange.exchange import Exchange
from gossip.exchange.sender import Sender
from gossip.exchange.sparse_pairs import Pairs
from gossip.values.blocks import is_finite
from gossip.wire.messages import Parcel, Proposal

__all__ = ["PairExchange"]


class PairExchange(Exchange):
    """Pairwise averaging of some coordinates. Moves carry no weight."""

    def __init__(self, sender: Sender, coding: PairCoding) -> None:
        self.pairs = Pairs(coding, sender.state.settings.resend_ceiling)
        super().__init__(sender)

    def new_life(self) -> None:
        """Forget all offers."""
        self.pairs.new_life()

    def take_turn(self, shard: int, turn: int, now: float) -> None:
        """Offer some values to the neighbours of the turn."""
        state, out = self.state, self.out
        edges = state.edges(turn)
        # Where there are several neighbours, each comes first in turn: what one is offered, the others are not.
        for address, fraction in edges[turn % len(edges) :] + edges[: turn % len(edges)] if edges else ():
            if state.view.fenced(address):
                out.fence(address)
            elif not out.backoff.skip(address.rank, shard) and out.fits(address, shard):
                weight, values = state.mass.weights[shard], state.mass.view(shard)
                try:
                    proposal = self.pairs.offer(state.me, address, turn, shard, weight, fraction, values, now)
                except Unencodable:
                    out.outlet.emit(events.NotFinite(shard))
                    return
                if proposal is not None:
                    out.outlet.send(proposal)

    def book(self, parcel: Parcel) -> None:
        """Book a move, which may answer an offer of ours."""
        super().book(parcel)
        if not parcel.weight:
            self.pairs.answered(parcel)

    def hear(self, proposal: Proposal) -> bool:
        """Keep an offer for the next boundary."""
        self.pairs.hear(proposal)
        return True

    def merged(self, shard: int, now: float) -> None:
        """Answer what others offer of a shard, unless something of it is in flight to them."""
        state, out, pairs = self.state, self.out, self.pairs
        for proposal in pairs.heard(shard):
            to = proposal.origin
            if state.leaving or not state.deals_with(to):
                pairs.drop(proposal)
            elif out.fits(to, shard):
                pairs.drop(proposal)
                try:
                    moved = pairs.move(proposal, state.mass.view(shard), state.mass.weights[shard], now)
                except Unencodable:
                    if not is_finite(state.mass.view(shard)):
                        out.outlet.emit(events.NotFinite(shard))
                    continue
                state.mass.move(shard, moved.values, -1)
                out.post(to, shard, proposal.turn, 0.0, moved, 0.0, now)
