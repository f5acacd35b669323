"""The curves of a report: which there are, and what is drawn in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from launch.report.axes import Format, Scale, duration, fitted, plain, short, time_scale
from launch.report.run_directory import Rank, Run
from launch.report.series import Floats
from launch.report.svg import Chart, Line, Mark, Span, spread
from launch.report.time_axis import TimeLine

__all__ = ["charts"]

#: With more ranks than this the faint lines are left out: one would see nothing else.
_FAINT = 8
#: Events that are drawn across the charts; the others are in the time line of the ranks.
_ACROSS = ("kill", "start again", "cut", "healed", "pause", "straggler")
#: The most of these that are drawn: more would hide the curves.
_MOST_ACROSS = 40


@dataclass(frozen=True)
class _Quantity:
    """Something that is drawn: one sum of a series over another."""

    name: str
    title: str
    above: str
    below: str
    label: str
    format: Format = plain
    by_step: bool = False
    zero: bool = False
    #: Whether single steps are worth a faint line; a share of waiting only jumps between nothing and all.
    raw: bool = False


_QUANTITIES = (
    _Quantity("loss-time", "Loss over time", "loss", "losses", "", raw=True),
    _Quantity("loss-step", "Loss over steps", "loss", "losses", "", by_step=True, raw=True),
    _Quantity("step-time", "Time of a step", "seconds", "lines", "", duration, raw=True),
    _Quantity("waiting", "Time spent waiting", "wait", "seconds", "share of a step", lambda share: f"{share:.0%}"),
    _Quantity("weight", "Push-sum weight", "weight", "weights", "1 on average"),
    _Quantity("sent", "Sent", "sent", "seconds", "per second", lambda size: short(size) + "B", zero=True),
    _Quantity("received", "Received", "received", "seconds", "per second", lambda size: short(size) + "B", zero=True),
)


def charts(run: Run, line: TimeLine) -> list[Chart]:
    """Return the charts of all that was recorded."""
    made = [_chart(run.ranks, line, quantity) for quantity in _QUANTITIES]
    return [chart for chart in [*made, _disagreement(run.ranks, line)] if chart is not None]


def _chart(ranks: Sequence[Rank], line: TimeLine, quantity: _Quantity) -> Chart | None:
    bold, faint = [], []
    for rank in ranks:
        below = rank.series.column(quantity.below)
        if not below.any():
            continue
        x = rank.series.step if quantity.by_step else line.since(rank.series.time)
        above, life = rank.series.column(quantity.above), rank.series.life
        bold.append(Line(rank.rank, x, _smooth(above, below, life), life))
        if quantity.raw and len(ranks) <= _FAINT:
            faint.append(_raw(rank, quantity, x))
    spans = _odd(ranks, line, quantity) if quantity.above == "loss" else []
    if not bold and not spans:
        return None
    smooth, raw = spread([one.y for one in bold]), spread([one.y for one in faint])
    if quantity.name == "waiting":
        y = Scale(0.0, 1.0, quantity.label, format=quantity.format)
    else:
        y = fitted(smooth, raw, quantity.label, quantity.format, zero=quantity.zero)
    last_step = max((float(one.series.step.max()) for one in ranks if len(one.series)), default=1.0)
    x_axis = Scale(0.0, max(1.0, last_step), "step") if quantity.by_step else time_scale(line.length)
    marks = [] if quantity.by_step else _across(ranks, line)
    described = _described(bold, spans, quantity)
    return Chart(quantity.name, quantity.title, described, x_axis, y, faint + bold, marks, spans)


def _smooth(above: Floats, below: Floats, life: Floats) -> Floats:
    """Return above / below, each averaged over some rows to both sides of the same life."""
    reach = len(life) // 40
    borders = np.flatnonzero(np.diff(life)) + 1
    # Not by differences of running sums: one loss of 1e20 would drown all that come after it.
    upper, lower = (
        np.concatenate([np.convolve(part, np.ones(2 * reach + 1))[reach:][: len(part)] for part in parts])
        for parts in (np.split(above, borders), np.split(below, borders))
    )
    # Where nothing was measured there is nothing to draw, though there be something near by.
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(below > 0, upper / lower, np.nan)


def _raw(rank: Rank, quantity: _Quantity, x: Floats) -> Line:
    series = rank.series
    if quantity.above == "loss":  # up and down between the lowest and the highest of a row
        y = series.loss_range.reshape(-1)
        return Line(rank.rank, np.repeat(x, 2), y, np.repeat(series.life, 2), faint=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        y = series.column(quantity.above) / series.column(quantity.below)
    return Line(rank.rank, x, y, series.life, faint=True)


def _odd(ranks: Sequence[Rank], line: TimeLine, quantity: _Quantity) -> list[Span]:
    """Return where the loss was not a finite number."""
    spans = []
    for rank in ranks:
        odd = np.flatnonzero(rank.series.column("odd") > 0)
        x = rank.series.step if quantity.by_step else line.since(rank.series.time)
        for run in np.split(odd, np.flatnonzero(np.diff(odd) > 1) + 1)[:_MOST_ACROSS] if len(odd) else []:
            text = f"rank {rank.rank}: loss is NaN or infinite around step {rank.series.step[run[0]]:.0f}"
            spans.append(Span(rank.rank, float(x[run[0]]), float(x[run[-1]]), text))
    return spans


def _across(ranks: Sequence[Rank], line: TimeLine) -> list[Mark]:
    found = [event for rank in ranks for event in rank.events if event.kind in _ACROSS and event.time is not None]
    found.sort(key=lambda event: (_ACROSS.index(event.kind), event.time))
    return [
        Mark(one.rank, line.moment(one.time or 0.0), one.kind, f"rank {one.rank}: {one.kind}: {one.text}")
        for one in found[:_MOST_ACROSS]
    ]


def _disagreement(ranks: Sequence[Rank], line: TimeLine) -> Chart | None:
    """Return the chart of what `consensus` reached, and of what the script measured itself."""
    lines = []
    for rank in ranks:
        measured = rank.series.column("disagreements")
        if measured.any():
            y = _smooth(rank.series.column("disagreement"), measured, rank.series.life)
            lines.append(Line(rank.rank, line.since(rank.series.time), y, rank.series.life))
    marks = [
        Mark(rank.rank, line.moment(one.time), "consensus", f"rank {rank.rank}: {one.text}", one.disagreement)
        for rank in ranks
        for one in rank.events
        if one.disagreement is not None and one.time is not None
    ]
    values = spread([*(one.y for one in lines), np.array([mark.y for mark in marks], dtype=float)])
    positive = values[values > 0]
    if not len(values):
        return None
    y_axis = fitted(positive if len(positive) else values, np.zeros(0), "between neighbours, relative")
    described = f"{len(marks)} measurements by consensus, as points; the lowest {values.min():.2g}."
    return Chart("apart", "Disagreement", described, time_scale(line.length), y_axis, lines, marks)


def _described(lines: Sequence[Line], spans: Sequence[Span], quantity: _Quantity) -> str:
    ends: Callable[[Line], Floats] = lambda one: one.y[np.isfinite(one.y)]  # noqa: E731
    values = "; ".join(f"rank {one.rank} {quantity.format(float(ends(one)[-1]))}" for one in lines if len(ends(one)))
    odd = f" Not a finite number in some steps of ranks {sorted({span.rank for span in spans})}." if spans else ""
    return f"One line per rank, smoothed. At the end: {values}.{odd}"
