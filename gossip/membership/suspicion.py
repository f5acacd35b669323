"""How long a suspect has to refute: the formula; the timer is elsewhere.

It starts with the longest time, since a single accuser may be unwell itself, and each independent confirmation
shortens it, the first most: with c of k confirmations

    most - (most - least) * log(c + 1) / log(k + 1)

A member from which we have heard since is not suspected by us any more, whatever others say: its time starts anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["Suspicion", "suspicion_time"]


def suspicion_time(least: float, most: float, confirmations: int, expected: int) -> float:
    """Return how long a suspicion lasts that so many others confirmed, of so many that were hoped for."""
    if expected < 1:
        return least  # there is nobody who could confirm it
    share = math.log(min(confirmations, expected) + 1) / math.log(expected + 1)
    return max(least, most - (most - least) * share)


class Suspicion:
    """Who suspects a member, and since when."""

    def __init__(self, now: float, least: float, most: float, expected: int) -> None:
        self.since = now
        self._least = least
        self._most = most
        self._expected = expected
        #: Who found it silent, at most one more than the confirmations that count.
        self.accusers: set[int] = set()

    def confirm(self, accusers: Iterable[int]) -> bool:
        """Take in who suspects it; return whether any of them is new and counts."""
        before = len(self.accusers)
        for rank in accusers:
            if len(self.accusers) <= self._expected:
                self.accusers.add(rank)
        return len(self.accusers) > before

    @property
    def ends_at(self) -> float:
        """When the suspect is dead, unless it refutes."""
        return self.since + suspicion_time(self._least, self._most, max(0, len(self.accusers) - 1), self._expected)
