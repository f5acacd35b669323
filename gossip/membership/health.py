"""How well this peer is itself: Lifeguard's local health.

A peer that is starved of a core reads its mail late and finds everybody silent. The signs are its own: probes that
fail though not even the helpers' "it did not answer me either" came, being suspected by others, and ticks
that came late. Each raises the score, each answered probe lowers it, and the score stretches this peer's own timeouts.
(Dadgar, Phillips, Currey, "Lifeguard: local health awareness for more accurate failure detection", 2018,
arXiv:1707.00788.)
"""

from __future__ import annotations

__all__ = ["Health"]


class Health:
    """A score from 0, well, to limit - 1."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.score = 0

    @property
    def stretch(self) -> int:
        """The factor on this peer's own timeouts and intervals."""
        return self.score + 1

    def worse(self, by: int = 1) -> None:
        """Take in a sign that this peer is unwell."""
        self.score = min(self._limit - 1, self.score + by)

    def better(self) -> None:
        """Take in a sign that it is well."""
        self.score = max(0, self.score - 1)
