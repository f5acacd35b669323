"""The health of this peer itself: Lifeguard's local health.

A peer that gets no CPU time reads its messages late, and all others seem silent to it. It can see signs of that: probes
that fail without even a nack from the helpers, suspicions of others against it, and late ticks. Each sign raises the
score, each answered probe lowers it, and the score stretches this peer's own timeouts.
(Dadgar, Phillips, Currey, "Lifeguard: local health awareness for more accurate failure detection", 2018,
arXiv:1707.00788.)
"""

from __future__ import annotations

__all__ = ["Health"]


class Health:
    """A score from 0, healthy, to limit - 1."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.score = 0

    @property
    def stretch(self) -> int:
        """The factor on this peer's own timeouts and intervals."""
        return self.score + 1

    def worse(self, by: int = 1) -> None:
        """Note a sign that this peer is overloaded."""
        self.score = min(self._limit - 1, self.score + by)

    def better(self) -> None:
        """Note a sign that this peer is healthy."""
        self.score = max(0, self.score - 1)
