"""A pool of memory for the copies of shards that parcels carry.

Fresh memory costs more to page in than the copy into it. But memory must not be used again while it is still read, and
there are many readers: the outbox, a transport that has not sent it yet, a fault injector that delays it, the inbox
after a parcel was taken back, and every consumer of effects. So readers do not have to say when they are done. The pool
hands out an array over the memory. Every view, slice and buffer of it, including those of ZeroMQ, refers to that array.
When the last reference is gone, in any thread, the memory returns to the pool.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np

from gossip.values.blocks import Values
from gossip.values.memory import Memory, Owner, Plain

__all__ = ["Pool"]

#: How many returned pieces of memory are tried: other processes may still read some of them.
_TRIES = 8


class Pool:
    """Hands out arrays, and takes their memory back when the last reference to them is gone."""

    def __init__(self, limit: int, owner: Owner | None = None) -> None:
        """Create an empty pool.

        Args:
            limit: the most bytes to keep while they are not in use; memory that returns beyond that is released.
            owner: the source of the memory; by default ordinary memory of this process.
        """
        self._limit = limit
        self._owner = owner or Plain()
        #: Free memory, by size. Appending and popping are atomic, because memory returns in any thread.
        self._free: dict[int, deque[Memory]] = {}

    @property
    def free_bytes(self) -> int:
        """The bytes that are free for later use."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    def close(self) -> None:
        """Release all free memory, and all memory that returns from now on."""
        self._limit = 0
        self._free.clear()

    def take(self, size: int, dtype: np.dtype[Any]) -> Values:
        """Return an array of ``size`` numbers with arbitrary values."""
        nbytes = size * dtype.itemsize
        memory = self._used(self._free.setdefault(nbytes, deque()))
        if memory is None:
            memory = self._owner.allocate(nbytes)
        # Made from a memoryview: a view of an array refers to the array that owns the memory, not to those in between.
        array: Values = np.frombuffer(memory.data, dtype)
        weakref.finalize(array, self._come_back, memory).atexit = False
        return array

    def _used(self, free: deque[Memory]) -> Memory | None:
        """Return memory that was used before, if there is any without readers."""
        for attempt in range(min(_TRIES, len(free))):
            # The latest to return is most likely still in the cache, and the oldest most likely has no readers.
            memory = free.popleft() if attempt else free.pop()
            if self._owner.reclaim(memory):
                return memory
            free.append(memory)
        return None

    def _come_back(self, memory: Memory) -> None:
        if self.free_bytes + memory.nbytes <= self._limit:
            self._free.setdefault(memory.nbytes, deque()).append(memory)
