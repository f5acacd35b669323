"""What is passed on to the neighbours, and when.

Whatever it says, everybody passes it on: with each step to the neighbours of the next turn, and at rest every so often,
so that it is through the swarm after as many rounds as the schedule needs to mix. It is meant for statements that can
be merged in any order and as often as they come; then a lost one does not matter.
"""

from __future__ import annotations

__all__ = ["Rumours"]

#: Seconds between two rounds while nothing else happens.
_INTERVAL = 0.25


class Rumours:
    """The news of one peer."""

    def __init__(self) -> None:
        self.body = b""
        #: When the next round is due, at rest; None: there is nothing to say.
        self.due_at: float | None = None
        self._turn = 0

    def next_turn(self, now: float) -> int:
        """Return the turn whose neighbours hear the news now. Rounds walk the schedule by a count of their own."""
        turn = self._turn
        self._turn += 1
        self.due_at = now + _INTERVAL
        return turn
