"""Counts rejected frames, and keeps a flood of them from flooding the log."""

from __future__ import annotations

from collections import Counter

from gossip.errors import Reason

__all__ = ["Rejections"]


class Rejections:
    """How many frames were rejected, for which reason, from whom."""

    #: Seconds before the same peer and reason are worth another line in the log.
    INTERVAL = 60.0
    #: Ranks are claimed by the frame itself, so a liar must not make us remember a million of them.
    _REMEMBERED = 1024

    def __init__(self) -> None:
        self.by_reason: Counter[Reason] = Counter()
        self._logged: dict[tuple[int | None, Reason], float] = {}

    @property
    def total(self) -> int:
        """All rejected frames."""
        return sum(self.by_reason.values())

    def add(self, reason: Reason, origin: int | None, now: float) -> bool:
        """Count one, and return whether to log it: the first of its kind, then one a minute."""
        self.by_reason[reason] += 1
        key = (origin, reason)
        last = self._logged.get(key)
        if last is not None and now - last < self.INTERVAL:
            return False
        if last is None and len(self._logged) >= self._REMEMBERED:
            # In a flood this is done for every frame: look at the oldest alone.
            oldest = next(iter(self._logged))
            if now - self._logged[oldest] < self.INTERVAL:
                return False
            del self._logged[oldest]
        self._logged.pop(key, None)  # what was logged last goes to the end
        self._logged[key] = now
        return True
