"""Axes: where a value is between the ends, and which values are written along it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from launch.report.series import Floats

__all__ = ["Scale", "duration", "fitted", "plain", "short", "time_scale"]

Format = Callable[[float], str]
_UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "days"))


def plain(value: float) -> str:
    """Write a number as people do: no needless zeros, powers only where there is no room otherwise."""
    return f"{value:g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.1e}".replace(".0e", "e")


def short(value: float) -> str:
    """Write a large number with k, M, G or T."""
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} "


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    factor, unit = next(one for one in reversed(_UNITS) if seconds >= one[0])
    return f"{seconds / factor:.3g} {unit}"


@dataclass(frozen=True)
class Scale:
    """An axis from low to high."""

    low: float
    high: float
    label: str = ""
    log: bool = False
    format: Format = plain
    #: What the axis counts in: ticks are round numbers of this.
    unit: float = 1.0

    def share(self, value: float) -> float:
        """Return how far up the axis a value is: 0 to 1, and beyond if it is outside."""
        if self.log:
            value = max(value, self.low / 10)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Return values along the axis, and how they are written."""
        values = self._decades() if self.log else self._steps()
        return [(value, self.format(value / self.unit)) for value in values]

    def _steps(self) -> list[float]:
        span = (self.high - self.low) / self.unit
        step = 10 ** math.floor(math.log10(span / 4))
        step *= next(factor for factor in (1, 2, 2.5, 5, 10, 20) if span / (step * factor) <= 6)
        first, last = math.ceil(self.low / self.unit / step - 1e-9), math.floor(self.high / self.unit / step + 1e-9)
        return [round(index * step, 12) * self.unit for index in range(first, last + 1)]

    def _decades(self) -> list[float]:
        low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = max(1, round((high - low) / 6))
        factors = (1, 2, 5) if self.high / self.low < 100 else (1,)
        values = [factor * 10.0**power for power in range(low, high + 1, every) for factor in factors]
        return [value for value in values if self.low * 0.999 <= value <= self.high * 1.001]


def time_scale(end: float) -> Scale:
    """Return the axis of the time since the run began."""
    end = max(end, 1e-3)
    factor, unit = next((one for one in reversed(_UNITS) if end >= 2 * one[0]), _UNITS[0])
    return Scale(0.0, end, f"time since the start, {unit}", unit=factor)


def fitted(drawn: Floats, faint: Floats, label: str, unit_format: Format = plain, *, zero: bool = False) -> Scale:
    """Return an axis for values: logarithmic if they differ by much, and not stretched by a few strays.

    Args:
        drawn: what has to fit.
        faint: what has to fit but for its outermost hundredth.
        label: of the axis.
        unit_format: writes the values along it.
        zero: begin at 0.
    """
    values = np.concatenate([drawn, np.quantile(faint, [0.01, 0.99]) if len(faint) else faint])
    if not len(values):
        return Scale(0.0, 1.0, label, format=unit_format)
    low, high = float(values.min()), float(values.max())
    if not zero and low > 0 and high / low > 30:
        return Scale(low / 1.1, high * 1.1, f"{label}, logarithmic".lstrip(", "), log=True, format=unit_format)
    low = min(0.0, low) if zero or 0 < low < high / 2 else low
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return Scale(low - (room if low else 0.0), high + room, label, format=unit_format)
