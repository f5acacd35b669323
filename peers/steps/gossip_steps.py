"""One step of a replica in its order: merge, move, exchange; and what the algorithm does in between."""

from __future__ import annotations

from peers.methods.method import Method
from peers.methods.moves import Moves
from peers.model.replica import Replica
from peers.session.session import Engine

__all__ = ["Stepping"]


class Stepping:
    """The steps of one replica."""

    def __init__(self, engine: Engine, replica: Replica, method: Method) -> None:
        self._engine = engine
        self._method = method
        self.moves = Moves(replica.layout.shards, replica.shard, engine.stretch)
        method.start()

    def begin(self) -> None:
        """Merge what has arrived, before the optimizer moves the values."""
        if self._engine.arrivals:
            self._engine.merge()
        self.moves.begin()
        self._method.begin(self._engine.exchanges)

    def end(self) -> None:
        """Make of the optimizer's move what the algorithm wants; then make it longer where mass is on its way."""
        self._method.end()
        self.moves.end()

    def exchange(self) -> float:
        """Hand the step over to the gossip; return how many seconds that took."""
        waited = self._engine.step()
        if self._engine.exchanged:
            self._method.exchanged(self._engine.exchanged)
        return waited
