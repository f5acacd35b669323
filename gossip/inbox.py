"""Mass that has arrived and waits for the trainer to come to its step boundary.

While a step is computed the values belong to the trainer, so whatever arrives, or is taken back, waits here. It
counts as held: it is acknowledged, and part of the peer's mass. Under a policy that keeps turns in order a parcel of a
turn that this peer has not pushed yet waits for that turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from gossip.messages import Parcel

__all__ = ["Inbox"]


class Inbox:
    """Parcels that are booked but not yet merged, by shard."""

    def __init__(self, shards: int, limit: int) -> None:
        self._limit = limit
        self._waiting: list[list[Parcel]] = [[] for _ in range(shards)]
        self._weights = [0.0] * shards
        self.nbytes = 0

    def __iter__(self) -> Iterator[Parcel]:
        for parcels in self._waiting:
            yield from parcels

    def weight(self, shard: int) -> float:
        """Return the weight that waits for the shard."""
        return self._weights[shard]

    def room(self, nbytes: int) -> bool:
        """Whether a parcel of another peer's fits; one always does when nothing waits."""
        return not self.nbytes or self.nbytes + nbytes <= self._limit

    def add(self, parcel: Parcel) -> None:
        """Let a parcel wait. What we took back ourselves comes in too, and has to fit: it is our own mass."""
        self._waiting[parcel.shard].append(parcel)
        self._weights[parcel.shard] += parcel.weight
        self.nbytes += parcel.values.nbytes

    def due(self, shard: int, turn: int | None) -> list[Parcel]:
        """Take out what is from before a turn, or all if that is None, in the order of arrival."""
        waiting = self._waiting[shard]
        if not waiting:
            return []
        out = [p for p in waiting if turn is None or p.turn < turn]
        if out:
            rest = [p for p in waiting if turn is not None and p.turn >= turn]
            self._waiting[shard] = rest
            self._weights[shard] = sum(p.weight for p in rest)
            self.nbytes -= sum(p.values.nbytes for p in out)
        return out
