"""After a refusal, leave a neighbour alone for 1, 2, 4, ... turns: it is full, and bytes cost."""

from __future__ import annotations

__all__ = ["Backoff"]

_LIMIT = 16


class Backoff:
    """Which turns to skip, for each neighbour and shard."""

    def __init__(self) -> None:
        #: (rank, shard) -> turns to skip now, turns that the next refusal costs.
        self._state: dict[tuple[int, int], tuple[int, int]] = {}

    def skip(self, rank: int, shard: int) -> bool:
        """Whether this turn is to be skipped; counts it if so."""
        left, cost = self._state.get((rank, shard), (0, 1))
        if left:
            self._state[rank, shard] = left - 1, cost
        return left > 0

    def refused(self, rank: int, shard: int) -> None:
        """Skip turns from now on, twice as many as after the refusal before."""
        _, cost = self._state.get((rank, shard), (0, 1))
        self._state[rank, shard] = cost, min(_LIMIT, 2 * cost)

    def accepted(self, rank: int, shard: int) -> None:
        """Start anew: the neighbour takes mass again."""
        self._state.pop((rank, shard), None)

    def forget(self, rank: int) -> None:
        """Drop what is known about a peer that died or left."""
        for key in [key for key in self._state if key[0] == rank]:
            del self._state[key]
