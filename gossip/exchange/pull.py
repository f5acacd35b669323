"""Pull: the neighbours of the turn are asked for a fraction of their mass."""

from __future__ import annotations

from gossip.exchange.exchange import Exchange
from gossip.wire.messages import Pull

__all__ = ["Pulls"]


class Pulls(Exchange):
    """Nobody waits for the answer, and nobody asks again: there is a next turn."""

    def take_turn(self, shard: int, turn: int, now: float) -> None:
        """Ask the neighbours of the turn for mass of theirs."""
        del now
        for address, fraction in self.state.edges(turn):
            if not self.state.view.fenced(address):
                self.out.outlet.send(Pull(self.state.me, address, turn, shard, fraction))
