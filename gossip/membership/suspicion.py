"""The time that a suspect has to refute: the formula. The timer is in `gossip.membership.opinions`.

The time starts with the longest value, since a single accuser may be overloaded itself. Each independent confirmation
shortens it, the first one most: with c of k confirmations it is

    most - (most - least) * log(c + 1) / log(k + 1)

When this peer hears from the suspect, it no longer suspects it itself, whatever others say: the time starts again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["Suspicion", "suspicion_time"]


def suspicion_time(least: float, most: float, confirmations: int, expected: int) -> float:
    """Return the duration of a suspicion with this number of confirmations, of the expected number."""
    if expected < 1:
        return least  # there is no other peer that could confirm it
    share = math.log(min(confirmations, expected) + 1) / math.log(expected + 1)
    return max(least, most - (most - least) * share)


class Suspicion:
    """The accusers of a member, and the time of the first accusation."""

    def __init__(self, now: float, least: float, most: float, expected: int) -> None:
        self.since = now
        self._least = least
        self._most = most
        self._expected = expected
        #: The ranks that got no answer, at most one more than the confirmations that count.
        self.accusers: set[int] = set()

    def confirm(self, accusers: Iterable[int]) -> bool:
        """Take in accusers; return whether any of them is new and counts."""
        before = len(self.accusers)
        for rank in accusers:
            if len(self.accusers) <= self._expected:
                self.accusers.add(rank)
        return len(self.accusers) > before

    @property
    def ends_at(self) -> float:
        """The time at which the suspect is dead, unless it refutes."""
        return self.since + suspicion_time(self._least, self._most, max(0, len(self.accusers) - 1), self._expected)
