"""Memory that is used again: for the copies of shards that parcels carry.

Fresh memory costs more to page in than the copy into it. But memory that somebody still reads must not be used again,
and readers are many: the outbox, a transport that has not sent it yet, a fault injector that holds it back, the inbox
after a parcel was taken back, whoever listens to effects. So nobody says that they are done. What is handed out is an
array over the memory; every view, slice and buffer of it refers to that array, ZeroMQ's included; and when the
last of them is gone, wherever and in whichever thread, the memory comes back.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np

from gossip.values.blocks import Values
from gossip.values.memory import Memory, Owner, Plain

__all__ = ["Pool"]

#: How many that have come back are tried: other processes may still read some.
_TRIES = 8


class Pool:
    """Hands out arrays and has their memory back when nobody refers to them any more."""

    def __init__(self, limit: int, owner: Owner | None = None) -> None:
        """Keep at most ``limit`` bytes that are not in use; what comes back beyond that is given up.

        Args:
            limit: in bytes.
            owner: where the memory is from; by default it is plain.
        """
        self._limit = limit
        self._owner = owner or Plain()
        #: By size. Appending and popping are atomic: memory comes back in any thread.
        self._free: dict[int, deque[Memory]] = {}

    @property
    def free_bytes(self) -> int:
        """How much is kept for later."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    def close(self) -> None:
        """Give up what is kept, and what comes back from now on."""
        self._limit = 0
        self._free.clear()

    def take(self, size: int, dtype: np.dtype[Any]) -> Values:
        """Return an array of so many numbers, of any value."""
        nbytes = size * dtype.itemsize
        memory = self._used(self._free.setdefault(nbytes, deque()))
        if memory is None:
            memory = self._owner.allocate(nbytes)
        # By way of a memoryview: a view of an array refers to the array that owns the memory, past those in between.
        array: Values = np.frombuffer(memory.data, dtype)
        weakref.finalize(array, self._come_back, memory).atexit = False
        return array

    def _used(self, free: deque[Memory]) -> Memory | None:
        """Return memory that was in use before, if there is any that nobody reads."""
        for attempt in range(min(_TRIES, len(free))):
            # The latest to come back is the likeliest to be in the cache still, the oldest to be read by nobody.
            memory = free.popleft() if attempt else free.pop()
            if self._owner.reclaim(memory):
                return memory
            free.append(memory)
        return None

    def _come_back(self, memory: Memory) -> None:
        if self.free_bytes + memory.nbytes <= self._limit:
            self._free.setdefault(memory.nbytes, deque()).append(memory)
