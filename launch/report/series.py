"""The lines of one rank's metrics, summed up while they are read: as few rows as a curve needs, however many lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Series"]

Floats = npt.NDArray[np.float64]

#: What is not below this counts as not finite: sums of such would overflow.
_FINITE = 1e100

#: What is added up over the lines of a row. "odd" counts losses that are not finite.
_SUMS = (
    "lines", "seconds", "wait", "sent", "received", "samples", "weight", "weights", "loss", "losses", "odd",
    "disagreement", "disagreements",
)  # fmt: skip


class Series:
    """Rows of added-up lines, in the order of the file; a row never spans two lives unless there are very many.

    A life that resumes from a checkpoint does the steps after it again, and the former life's lines of them are left
    out: what they did is lost, and would be counted twice. A life that was started anew counts its steps from 1, but
    what the former one did is not lost: the others have it. So its steps are counted on from there.
    """

    def __init__(self, limit: int, starts: Sequence[float] = (), resumes: Sequence[tuple[float, float]] = ()) -> None:
        """Begin empty.

        Args:
            limit: never keep more rows than this.
            starts: times at which a life of this rank began.
            resumes: times at which a life went on from a checkpoint, and the step of that.
        """
        self._limit = limit
        self._starts = np.sort(np.array(starts, dtype=float))
        resumed = np.array(sorted(resumes), dtype=float).reshape(-1, 2)
        self._resumes = resumed[:, 0]
        #: The last step that counts of what was written before each of them, and after all.
        self._counted = np.append(np.minimum.accumulate(resumed[::-1, 1])[::-1], np.inf)
        #: Added to the steps of this life.
        self._offset = 0.0
        #: Lines that were left out.
        self.superseded = 0
        self._stride = 1  # lines in a row
        self._last = (-np.inf, 0, 0.0, 0.0)  # step, index of the start, life, time
        self._sums = np.zeros((0, len(_SUMS)))
        self._ends = np.zeros((0, 3))  # time, step and life of the last line of each row
        self._range = np.zeros((0, 2))  # the lowest and highest loss
        #: When the first line's step began.
        self.begin: float | None = None
        #: The step at which the loss was first not finite.
        self.first_odd: int | None = None

    def __len__(self) -> int:
        return len(self._sums)

    def column(self, name: str) -> Floats:
        """Return a sum of each row."""
        return self._sums[:, _SUMS.index(name)]

    @property
    def time(self) -> Floats:
        """The time of the last line of each row."""
        return self._ends[:, 0]

    @property
    def step(self) -> Floats:
        """The step of the last line of each row, counted over all lives."""
        return self._ends[:, 1]

    @property
    def life(self) -> Floats:
        """Which life of the rank a row belongs to, counted from 0."""
        return self._ends[:, 2]

    @property
    def loss_range(self) -> Floats:
        """The lowest and the highest loss of each row."""
        return self._range

    def total(self, name: str, *, last_life: bool = False) -> float:
        """Return a sum over all rows, or over those of the last life."""
        values = self.column(name)
        return float(np.sum(values[self.life == self.life[-1]] if last_life and len(values) else values))

    def add(self, lines: Sequence[Mapping[str, Any]]) -> bool:
        """Add lines of the file; return False, and add none, if one has no step or no seconds that are numbers."""
        step, seconds = _column(lines, "step"), _column(lines, "seconds")
        if not (np.isfinite(step).all() and np.isfinite(seconds).all()):
            return False
        time = self._times(lines, seconds)
        kept = step <= self._counted[np.searchsorted(self._resumes, time, side="right")]
        if not kept.all():
            self.superseded += int(np.sum(~kept))
            lines = [line for line, keep in zip(lines, kept, strict=True) if keep]
            step, seconds, time = step[kept], seconds[kept], time[kept]
            if not lines:
                return True
        loss, weight, apart = (_column(lines, name) for name in ("loss", "weight", "disagreement"))
        finite = np.isfinite(loss)
        odd = ~finite & np.array([_is_odd(line.get("loss")) for line in lines]) if not finite.all() else ~finite
        if self.first_odd is None and odd.any():
            self.first_odd = int(step[np.argmax(odd)])
        others = ("wait_seconds", "bytes_sent", "bytes_received", "samples")
        wait, sent, received, samples = (np.nan_to_num(_column(lines, name)) for name in others)
        known, measured = np.isfinite(weight), np.isfinite(apart)
        columns = (
            np.ones(len(lines)), seconds, wait, sent, received, samples, np.where(known, weight, 0), known,
            np.where(finite, loss, 0), finite, odd, np.where(measured, apart, 0), measured,
        )  # fmt: skip
        sums = np.column_stack([np.asarray(column, dtype=float) for column in columns])
        loss = np.where(finite, loss, np.nan)
        lives, step = self._lives(time, step)
        ends = np.column_stack([time, step, lives])
        self._append(sums, ends, np.column_stack([loss, loss]))
        return True

    def _times(self, lines: Sequence[Mapping[str, Any]], seconds: Floats) -> Floats:
        """Return when each line was written; where none says so, as if nothing had passed between the steps."""
        time = _column(lines, "time")
        time = np.where(np.isfinite(time), time, self._last[3] + np.cumsum(seconds))
        if self.begin is None:
            self.begin = float(time[0] - seconds[0])
        return time

    def _lives(self, time: Floats, step: Floats) -> tuple[Floats, Floats]:
        """Return the life of each line, and its step over all lives.

        A new life begins where steps go back, or where a start was recorded.
        """
        starts = np.searchsorted(self._starts, time, side="right")
        before = np.concatenate([[self._last[0]], step[:-1]])
        began = np.concatenate([[self._last[1] if len(self) else starts[0]], starts[:-1]])
        back = step <= before
        lives = self._last[2] + np.cumsum(back | (starts > began))
        offsets = self._offset + np.cumsum(np.where(back, before, 0.0))
        self._offset = float(offsets[-1])
        self._last = (float(step[-1]), int(starts[-1]), float(lives[-1]), float(time[-1]))
        return np.asarray(lives, dtype=float), np.asarray(step + offsets, dtype=float)

    def _append(self, sums: Floats, ends: Floats, loss: Floats) -> None:
        self._sums = np.concatenate([self._sums, sums])
        self._ends = np.concatenate([self._ends, ends])
        self._range = np.concatenate([self._range, loss])
        self._merge()
        while len(self) > self._limit:
            self._stride *= 2
            self._merge()

    def _merge(self) -> None:
        """Make one row of those whose lines begin in the same stretch of the file, and in the same life."""
        lines = self.column("lines")
        stretch = (np.cumsum(lines) - lines) // self._stride
        begins = np.diff(stretch, prepend=-1) > 0
        new_life = np.diff(self.life, prepend=-1) > 0
        if new_life.sum() <= self._limit / 2:  # otherwise there are too many lives to keep them apart
            begins |= new_life
        first = np.flatnonzero(begins)
        last = np.concatenate([first[1:], [len(lines)]]) - 1
        lowest: Callable[..., Any] = np.fmin.reduceat
        highest: Callable[..., Any] = np.fmax.reduceat
        self._range = np.column_stack([lowest(self._range[:, 0], first), highest(self._range[:, 1], first)])
        self._sums, self._ends = np.add.reduceat(self._sums, first, axis=0), self._ends[last]


def _column(lines: Sequence[Mapping[str, Any]], name: str) -> Floats:
    values = [line.get(name) for line in lines]
    try:
        column = np.array(values, dtype=float)
    except (ValueError, TypeError, OverflowError):  # the script logged text under this name
        column = np.array([_number(value) for value in values], dtype=float)
    column[~(np.abs(column) < _FINITE)] = np.nan
    return column


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, (int, float)) else np.nan
    except OverflowError:
        return np.inf


def _is_odd(value: object) -> bool:
    return isinstance(value, (int, float)) and not abs(_number(value)) < _FINITE
