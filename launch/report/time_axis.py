"""The time axis of a report: from the first start on, without the time in which nothing ran."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from launch.report.run_directory import Rank, Run
from launch.report.series import Floats

__all__ = ["TimeLine", "lives"]

#: A stretch in which no rank wrote anything is left out if it is longer than this share of all others together...
_SHARE = 0.5
#: ...and longer than this many seconds.
_SECONDS = 60.0


class TimeLine:
    """Turns the times of records into seconds since the run began."""

    def __init__(self, run: Run) -> None:
        """Look at when each life began and ended."""
        busy = _joined(sorted(life for rank in run.ranks for life in lives(rank)))
        working = sum(end - begin for begin, end in busy)
        known, placed, now = [], [], 0.0
        #: Seconds that are left out.
        self.left_out = 0.0
        for index, (begin, end) in enumerate(busy):
            if index:
                gap = begin - busy[index - 1][1]
                if gap > max(_SECONDS, _SHARE * working):
                    self.left_out += gap
                    gap = 0.01 * working
                now += gap
            known += [begin, end]
            placed += [now, now + end - begin]
            now += end - begin
        self._known, self._placed = np.array(known or [0.0]), np.array(placed or [0.0])
        #: When the run began, in seconds since 1970, and how long it has been going.
        self.begin, self.length = float(self._known[0]), now

    def since(self, time: Floats) -> Floats:
        """Return times as seconds since the run began."""
        return np.asarray(np.interp(time, self._known, self._placed), dtype=float)

    def moment(self, time: float) -> float:
        """Return one time as seconds since the run began."""
        return float(np.interp(time, self._known, self._placed))


def lives(rank: Rank) -> Iterator[tuple[float, float]]:
    """Yield when each life of a rank began, and when it last wrote something."""
    series = rank.series
    moments = [(float(time), False) for time in series.time]
    moments += [(event.time, event.kind in ("start", "start again")) for event in rank.events if event.time is not None]
    firsts = np.flatnonzero(np.diff(series.life)) + 1
    moments += [(float(series.time[first]), True) for first in firsts if not rank.starts]
    if series.begin is not None:
        moments.append((series.begin, False))
    begin = last = None
    for time, starts in sorted(moments, key=lambda one: (one[0], not one[1])):
        if starts and begin is not None and last is not None:
            yield begin, last
            begin = None
        begin, last = time if begin is None else begin, time
    if begin is not None and last is not None:
        yield begin, last


def _joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for begin, end in spans:
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined
