"""Fetching a result or a state from another member, a few parts at a time."""

from __future__ import annotations

import numpy as np

from gossip.values.blocks import Values
from gossip.wire.messages import Chunk, Subject

__all__ = ["AT_A_TIME", "Fetch", "state_part", "state_parts"]

#: Parts that are asked for, and sent, at a time: enough to keep a link busy, few enough to bound memory.
AT_A_TIME = 32
#: The state is sent in parts of this size.
_STATE_BYTES = 1 << 20


def state_parts(state: bytes) -> int:
    """Return the number of parts of a state."""
    return max(1, -(-len(state) // _STATE_BYTES))


def state_part(state: bytes, index: int) -> Values:
    """Return one part of a state."""
    return np.frombuffer(state, np.uint8)[index * _STATE_BYTES : (index + 1) * _STATE_BYTES]


class Fetch:
    """One fetch: its subject, and the parts that have arrived."""

    def __init__(self, subject: Subject, source: int, number: int, total: int | None = None) -> None:
        """Fetch a subject of a round from a rank. Without ``total``, the first part says how many parts there are."""
        self.subject = subject
        self.source = source
        self.round = number
        self.total = total
        #: The value of `Chunk.step` in each part.
        self.step = 0
        self.parts: dict[int, Values] = {}
        self._asked: set[int] = set()

    @property
    def whole(self) -> bool:
        """Whether all parts have arrived."""
        return self.total is not None and len(self.parts) == self.total

    def next(self) -> list[int]:
        """Return the parts to ask for now: none while answers are still missing."""
        if self._asked - self.parts.keys():
            return []
        missing = (index for index in range(1 if self.total is None else self.total) if index not in self.parts)
        found = [index for index, _ in zip(missing, range(AT_A_TIME), strict=False)]
        self._asked.update(found)
        return found

    def again(self) -> list[int]:
        """Return the parts that were asked for and have not arrived."""
        return sorted(self._asked - self.parts.keys())

    def take(self, chunk: Chunk) -> bool:
        """Take in a part; return whether it was missing."""
        if (chunk.subject, chunk.origin.rank, chunk.round) != (self.subject, self.source, self.round):
            return False
        if chunk.index not in self._asked or chunk.index in self.parts:
            return False
        if self.total is None:
            self.total = max(1, chunk.step)
        self.step = chunk.step
        self.parts[chunk.index] = chunk.values
        return True
