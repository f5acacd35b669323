"""How the lives of a rank are numbered, and how they are shown.

A life, or incarnation, is a number that is higher after each restart, and by 1 after each false death. The launcher
counts restarts and leaves `LIVES_APART` numbers for false deaths in between. Where nobody counts, the process draws the
milliseconds of its clock (`peers.joining`).
"""

from __future__ import annotations

import time

__all__ = ["LIVES_APART", "drawn_life", "life_text"]

#: The distance between the lives of two processes where they are counted.
LIVES_APART = 1000
#: Lives from here on are milliseconds of a clock: the year 2001.
_DRAWN = 10**12


def drawn_life() -> int:
    """Return the number of this process among those that the rank ever had: the milliseconds of the clock.

    Should the clock have gone back since the last start, the others say which life they know, and this peer takes a
    later one.
    """
    return time.time_ns() // 1_000_000


def life_text(incarnation: int) -> str:
    """Return a life as people read it: the number of restarts or the time of the start, then the false deaths."""
    if incarnation >= _DRAWN:
        return time.strftime("%H:%M:%S", time.localtime(incarnation / 1000))
    restarts, false_deaths = divmod(incarnation, LIVES_APART)
    return f"{restarts}+{false_deaths}" if false_deaths else str(restarts)
