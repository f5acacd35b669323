"""How long this machine itself stood still: a thread that wants to run every hundredth of a second."""

from __future__ import annotations

import threading
import time

__all__ = ["Metronome"]

_BEAT = 0.01


class Metronome:
    """Beats until it is closed, and knows when it was late."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Beat no more."""
        self._closed.set()
        self._thread.join()

    def longest(self, since: float) -> float:
        """Return the longest time, in seconds, for which it was not let run since a time on the wall."""
        return max((gap for at, gap in self._late if at >= since), default=0.0)

    def _run(self) -> None:
        last = time.monotonic()
        while not self._closed.wait(_BEAT):
            now = time.monotonic()
            if now - last > 10 * _BEAT:
                self._late.append((time.time(), now - last))
            last = now
