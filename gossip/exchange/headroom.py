"""How much of the time to the next exchange a push may take, so that nobody waits for it.

That the link carries it while the trainer computes is not enough: parcels also have to be in time for those who are
ahead, and rounding and merging take time. So what counts is whether the trainer waits. If it does, although a push
fits, and takes long enough to be the reason, less is tried; if that does not help, it is somebody's computing that is
waited for, and what was tried is taken back. Less mixing makes a step worth less (`gossip.choosing.worths`), so it is
only tried where more time can be saved than it costs in worth, and only kept where that came true.
"""

from __future__ import annotations

__all__ = ["Room"]

#: The part of the computing between exchanges that a push may take where nobody waits.
MOST = 0.8
#: Waiting for less than this part of the computing is as good as none; a push that takes less causes none.
_HIDDEN, _NEGLIGIBLE = 0.03, 0.1
#: What is tried instead, of what a push takes: about half, since shares come in halves.
_LESS = 0.6
#: It has helped if no more than this part of the waiting is left. Else it is tried again after this number of looks.
_HELPED, _REST = 0.75, 16
#: How fast the room grows again.
_GROWTH = 1.05


class Room:
    """The part of the computing between exchanges that a push may take, found by trying."""

    def __init__(self) -> None:
        self.part = MOST
        #: The room, the part of the computing that was waited for, and the worth that a step had in terms of what it
        #: has now, before less was tried.
        self._tried: tuple[float, float, float] | None = None
        self._rest = 0

    def look(self, waited: float, pushed: float, dearer: float = 1.0) -> bool:
        """Learn from the exchanges since the last look; return whether what was tried then is to be taken back.

        Args:
            waited: for which part of the computing the trainer waited.
            pushed: which part of it a push takes.
            dearer: how many times as much a step is worth now as it would be with the next lighter choice.
        """
        tried, self._tried = self._tried, None
        if tried is not None:
            part, before, worth = tried
            if waited > _HELPED * before or 1 + before < worth * (1 + waited):
                self.part, self._rest = part, _REST
                return True
        if self._rest:
            self._rest -= 1
        elif waited > max(_HIDDEN, dearer - 1) and _NEGLIGIBLE < pushed <= self.part:
            self._tried = self.part, waited, dearer
            self.part = _LESS * pushed
        else:
            self.part = min(MOST, _GROWTH * self.part)
        return False
