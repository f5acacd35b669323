"""A picture of how fast topologies mix: the disagreement over the steps, one curve each."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from functools import partial

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from launch.catalog.mixing import spread
from launch.catalog.topologies_table import Row, steps_text
from launch.terminal import watched
from topologies import Analysis, Schedule
from topologies.analysis import disagreement

__all__ = ["figure"]

#: Where the axes end. Slower ones run out of the picture on the right; the legend has their figures.
_STEPS = 200
_FLOOR = 1e-10
#: The axis is linear up to this step, so that curves that become exact after 4 or 5 steps are distinguishable.
_LINEAR = 10
#: Up to this number of peers the curve is the worst case over all starting values. For more peers that takes minutes,
#: and the curve follows random starting values instead.
_WORST_CASE = 64
#: Curves that differ by less than this everywhere would lie on top of each other.
_ONE_LINE = 0.02
_STYLES = ("-", "--", "-.", ":")


def figure(rows: list[Row]) -> Figure:
    """Draw the disagreement of all rows that have a schedule; equal curves are drawn and named once."""
    result = Figure(figsize=(11.5, 7.5), dpi=110)
    axes = result.subplots()
    colours = mpl.colormaps["tab10"]
    for number, curve in enumerate(_curves(rows)):
        colour, style = colours(number % 10), _STYLES[number // 10 % len(_STYLES)]
        axes.plot(curve.values, label=curve.label, linewidth=1.6, color=colour, linestyle=style)
        exact = curve.analysis.exact_after
        if exact is not None and exact <= _STEPS:
            axes.plot([exact], [_FLOOR], marker="o", color=colour, clip_on=False, zorder=5)
    axes.set_xscale("symlog", linthresh=_LINEAR, linscale=1.6)
    axes.xaxis.set_major_locator(FixedLocator([*range(_LINEAR + 1), 20, 30, 50, 100, _STEPS]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_yscale("log")
    axes.set(xlim=(0, _STEPS), ylim=(_FLOOR, 3.0), xlabel=f"steps (linear up to {_LINEAR}, then logarithmic)")
    start = "at worst" if rows[0].n <= _WORST_CASE else "from random values"
    axes.set_ylabel(f"disagreement: what is left of the peers' differences, {start}")
    axes.grid(alpha=0.3)
    missing = [row.topology.name for row in rows if row.analysis is None]
    without = f"\nnot for this n: {', '.join(missing)}" if missing else ""
    peers = "1 peer" if rows[0].n == 1 else f"{rows[0].n} peers"
    axes.set_title(f"How fast {peers} agree{without}", fontsize=11)
    if axes.lines:
        axes.legend(
            title="fastest first: steps to 1e-9\n(dot: exact; * random)",
            title_fontsize=8.5,
            fontsize=8,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            frameon=False,
            handlelength=3.2,
            alignment="left",
        )
    result.subplots_adjust(left=0.07, right=0.71, top=0.91, bottom=0.08)
    return result


@dataclass
class _Curve:
    values: list[float]
    analysis: Analysis
    names: list[str]

    @property
    def label(self) -> str:
        """The names of the topologies, and the figure that sorts the legend."""
        names = "\n".join(textwrap.wrap(", ".join(self.names), 46))
        return f"{names}: {steps_text(self.analysis.steps_to_1e9, self.analysis)}"


def _curves(rows: list[Row]) -> list[_Curve]:
    """Return the distinct curves with the names of their topologies, fastest first."""
    found: list[_Curve] = []
    for row in watched(sorted((row for row in rows if row.analysis), key=_speed), "following the steps"):
        assert row.schedule is not None
        assert row.analysis is not None
        name = f"{row.topology.name} *" if row.topology.random else row.topology.name
        reached = row.analysis.steps_to_1e9
        # A little past 1e-9, so that the line reaches the floor.
        steps = _STEPS if reached is None else min(reached * 5 // 4 + 2, _STEPS)
        values = [max(value, _FLOOR / 10) for value in _follow(row.schedule, steps)]
        same = next((curve for curve in found if _equal(curve.values, values)), None)
        if same is not None:
            same.names.append(name)
        else:
            found.append(_Curve(values, row.analysis, [name]))
    return found


def _follow(schedule: Schedule, steps: int) -> list[float]:
    if schedule.n <= _WORST_CASE:
        return disagreement(schedule, steps)
    return spread(schedule, np.random.default_rng(0).standard_normal((schedule.n, 4)), steps)


def _speed(row: Row) -> tuple[float, float]:
    assert row.analysis is not None
    steps = (row.analysis.steps_to_1e9, row.analysis.steps_to_1e3)
    first, second = (math.inf if count is None else count for count in steps)
    return first, second


def _equal(one: list[float], other: list[float]) -> bool:
    return len(one) == len(other) and all(map(partial(math.isclose, rel_tol=_ONE_LINE), one, other))
