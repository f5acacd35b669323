"""Getting from another member what it has and we lack, a few parts at a time."""

from __future__ import annotations

import numpy as np

from gossip.values.blocks import Values
from gossip.wire.messages import Chunk, Subject

__all__ = ["AT_A_TIME", "Fetch", "state_part", "state_parts"]

#: Parts that are asked for, and given, at a time: enough to keep a link busy, few enough to bound what lies around.
AT_A_TIME = 32
#: The state goes in parts of this size.
_STATE_BYTES = 1 << 20


def state_parts(state: bytes) -> int:
    """Return how many parts a state has."""
    return max(1, -(-len(state) // _STATE_BYTES))


def state_part(state: bytes, index: int) -> Values:
    """Return one of them."""
    return np.frombuffer(state, np.uint8)[index * _STATE_BYTES : (index + 1) * _STATE_BYTES]


class Fetch:
    """What is fetched, and what has come of it."""

    def __init__(self, subject: Subject, source: int, number: int, total: int | None = None) -> None:
        """Fetch something of a round from a rank; how many parts there are is known, or said with the first."""
        self.subject = subject
        self.source = source
        self.round = number
        self.total = total
        #: What goes with each part: see `Chunk.step`.
        self.step = 0
        self.parts: dict[int, Values] = {}
        self._asked: set[int] = set()

    @property
    def whole(self) -> bool:
        """Whether everything is there."""
        return self.total is not None and len(self.parts) == self.total

    def next(self) -> list[int]:
        """Return what is to be asked for now: nothing while there are answers to come."""
        if self._asked - self.parts.keys():
            return []
        missing = (index for index in range(1 if self.total is None else self.total) if index not in self.parts)
        found = [index for index, _ in zip(missing, range(AT_A_TIME), strict=False)]
        self._asked.update(found)
        return found

    def again(self) -> list[int]:
        """Return what was asked for and has not come."""
        return sorted(self._asked - self.parts.keys())

    def take(self, chunk: Chunk) -> bool:
        """Take a part in; return whether it was wanted."""
        if (chunk.subject, chunk.origin.rank, chunk.round) != (self.subject, self.source, self.round):
            return False
        if chunk.index not in self._asked or chunk.index in self.parts:
            return False
        if self.total is None:
            self.total = max(1, chunk.step)
        self.step = chunk.step
        self.parts[chunk.index] = chunk.values
        return True
