"""Batches that can be gone through once: whoever begins again after their end is told what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peers.data.loops import LoopError

__all__ = ["OnceThrough"]


class OnceThrough:
    """The batches of one loop. A generator would silently be empty the second time."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._over = False
        self._count = 0

    def __iter__(self) -> Iterator[Any]:
        if self._over:
            raise LoopError(
                f"this loop over peer.batches is through with all its epochs, after {self._count} batches: give "
                "epochs=N to one call of peer.batches, or call peer.batches(...) anew for each epoch, with epochs=1"
            )
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._over = True
            raise
        self._count += 1
        return batch
