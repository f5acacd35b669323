"""Named timers in a heap. One can be set again or dropped, and all can be postponed at once."""

from __future__ import annotations

import heapq

__all__ = ["Timer", "Timers"]

#: The name of a timer, and its rank or sequence.
Timer = tuple[str, int]


class Timers:
    """Named timers. Setting a name again replaces its timer; the former entry stays in the heap and is skipped."""

    def __init__(self) -> None:
        self._at: dict[Timer, float] = {}
        self._heap: list[tuple[float, Timer]] = []

    def set(self, what: str, at: float, about: int = 0) -> None:
        """Make ``what`` due at a moment."""
        timer = (what, about)
        if self._at.get(timer) != at:
            self._at[timer] = at
            heapq.heappush(self._heap, (at, timer))

    def sooner(self, what: str, at: float, about: int = 0) -> None:
        """Make ``what`` due at a moment, unless it is due before."""
        self.set(what, min(at, self._at.get((what, about), at)), about)

    def drop(self, what: str, about: int = 0) -> None:
        """Make ``what`` never due."""
        self._at.pop((what, about), None)

    def pending(self, what: str, about: int = 0) -> bool:
        """Whether ``what`` will be due."""
        return (what, about) in self._at

    @property
    def earliest(self) -> float | None:
        """The time of the next timer."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> Timer | None:
        """Remove and return the next timer that is due."""
        earliest = self.earliest
        if earliest is None or earliest > now:
            return None
        timer = heapq.heappop(self._heap)[1]
        del self._at[timer]
        return timer

    def put_off(self, seconds: float) -> None:
        """Postpone all timers by some seconds."""
        self._at = {timer: at + seconds for timer, at in self._at.items()}
        self._heap = [(at, timer) for timer, at in self._at.items()]
        heapq.heapify(self._heap)

    def clear(self) -> None:
        """Drop all timers."""
        self._at.clear()
        self._heap.clear()
