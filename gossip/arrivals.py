"""Deadlines learned from what was observed.

Both clocks here are the estimator of TCP (Jacobson 1988): a running mean and a running mean deviation, and the
deadline is mean + 4 deviations. A setting is only ever the ceiling.
"""

from __future__ import annotations

__all__ = ["Estimate", "Lateness"]

#: One that was slow is so until its mean lateness is below this part of the patience.
_AGAIN = 0.3


class Estimate:
    """A running mean and mean deviation of a duration."""

    def __init__(self) -> None:
        self.mean: float | None = None
        self._deviation = 0.0

    def add(self, seconds: float) -> None:
        """Take in one observation; the first counts whole, each later one 1/8."""
        if self.mean is None:
            self.mean, self._deviation = seconds, seconds / 2
            return
        self._deviation += (abs(seconds - self.mean) - self._deviation) / 4
        self.mean += (seconds - self.mean) / 8

    def deadline(self, ceiling: float) -> float:
        """Return how long to wait: mean + 4 deviations, at most the ceiling; the ceiling while nothing is known."""
        return ceiling if self.mean is None else min(ceiling, self.mean + 4 * self._deviation)


class Lateness:
    """How long after our own step a neighbour's parcel arrives, and so how long it is worth waiting for.

    A neighbour that is regularly later than ``patience`` is slow, not lost: waiting for it would make everybody as
    slow as it is, so nobody does. What it sends still counts whenever it comes, and once it is on time again
    it is waited for again. Not at once: one that is slow is on time now and then, where it skipped to the turn of the
    others, and to wait for the next would be in vain.
    """

    def __init__(self) -> None:
        self._neighbours: dict[int, Estimate] = {}
        self._slow: set[int] = set()

    def add(self, rank: int, seconds: float) -> None:
        """Take in that a parcel came so long after it was first wanted; 0 if it was there already."""
        self._neighbours.setdefault(rank, Estimate()).add(seconds)

    def wait(self, rank: int, patience: float) -> float:
        """Return how long to wait for the neighbour's parcel: 0 if it is slow, ``patience`` if unknown.

        Never less than half the patience, so that an unusual delay of a punctual neighbour is not at once a miss.
        """
        estimate = self._neighbours.get(rank)
        if estimate is None or estimate.mean is None:
            return patience
        if estimate.mean > (_AGAIN * patience if rank in self._slow else patience):
            self._slow.add(rank)
            return 0.0
        self._slow.discard(rank)
        return max(patience / 2, estimate.deadline(patience))

    def forget(self, rank: int) -> None:
        """Start anew with a neighbour that died or left."""
        self._neighbours.pop(rank, None)
        self._slow.discard(rank)
