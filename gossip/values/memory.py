"""Where the memory of a pool is from: this process alone, or somewhere that others can read."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

__all__ = ["Memory", "Owner", "Plain"]

Memory = np.ndarray[Any, np.dtype[np.uint8]]


class Owner(Protocol):
    """Where a pool has its memory from."""

    def allocate(self, nbytes: int) -> Memory:
        """Return new memory, of any content."""

    def reclaim(self, memory: Memory) -> bool:
        """Whether memory that nobody in this process refers to may be written to again."""


class Plain:
    """Memory of this process alone."""

    def allocate(self, nbytes: int) -> Memory:
        """Return new memory."""
        return np.empty(nbytes, np.uint8)

    def reclaim(self, memory: Memory) -> bool:  # noqa: ARG002
        """Return True: there are no readers elsewhere."""
        return True
