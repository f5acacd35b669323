"""Charts as SVG for a web page: colours come from the page's style, so that they fit a light and a dark one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from launch.report.axes import Scale
from launch.report.series import Floats

__all__ = ["Chart", "Line", "Mark", "Span", "axis", "drawn", "placed", "shape", "spread"]

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 54, 18, 16, 36

#: How each kind of event looks, in a square of 8 around 0.
_SHAPES = {
    "kill": "M-4-4L4 4M-4 4L4-4",
    "start": "M-3-4V4L4 0Z",
    "start again": "M-3-4V4L4 0Z",
    "cut": "M-4 0H-1.5M4 0H1.5M-1.5-4V4M1.5-4V4",
    "healed": "M-4 0H4M0-4V4",
    "pause": "M-2-4V4M2-4V4",
    "straggler": "M0-4L4 0L0 4L-4 0Z",
    "consensus": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0Z",
    "warning": "M0-4L4 3.5H-4Z",
}
_OTHER = "M-3-3H3V3H-3Z"


@dataclass(frozen=True)
class Line:
    """A line of one rank; it is broken where y is not a number, and where the part changes."""

    rank: int
    x: Floats
    y: Floats
    part: Floats
    faint: bool = False


@dataclass(frozen=True)
class Mark:
    """Something at one x: on a line across the chart, or, with a y, at a point."""

    rank: int
    x: float
    kind: str
    text: str
    y: float | None = None


@dataclass(frozen=True)
class Span:
    """A stretch of x along the upper edge, such as that in which the loss was no number."""

    rank: int
    begin: float
    end: float
    text: str


@dataclass(frozen=True)
class Chart:
    """A chart; ``name`` is unique on the page."""

    name: str
    title: str
    description: str
    x: Scale
    y: Scale
    lines: Sequence[Line] = ()
    marks: Sequence[Mark] = ()
    spans: Sequence[Span] = field(default=())


def drawn(chart: Chart) -> str:
    """Return a chart as SVG."""
    across = placed(chart.x, LEFT, WIDTH - RIGHT)
    down = placed(chart.y, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{chart.name}-t {chart.name}-d">',
        f'<title id="{chart.name}-t">{escape(chart.title)}</title>',
        f'<desc id="{chart.name}-d">{escape(chart.description)}</desc>',
        *_axes(chart, across, down),
    ]
    for faint in (True, False):
        for line in chart.lines:
            if line.faint == faint and (path := _path(line, across, down)):
                name = "" if faint else f"<title>rank {line.rank}</title>"
                parts.append(f'<path class="l{" f" if faint else ""} r{line.rank}" d="{path}">{name}</path>')
    for index, span in enumerate(chart.spans):
        begin, end, y = across(span.begin), across(span.end), TOP + 3 + 5 * (index % 8)
        parts.append(
            f'<path class="s r{span.rank}" d="M{begin:.1f} {y}H{max(end, begin + 2):.1f}">'
            f"<title>{escape(span.text)}</title></path>"
        )
        if index < 8:
            parts.append(f'<text class="n" x="{begin - 3:.1f}" y="{y + 4}" text-anchor="end">not finite</text>')
    parts += [_mark(mark, across, down) for mark in chart.marks]
    return "\n".join([*parts, "</svg>"])


def shape(kind: str, x: float, y: float) -> str:
    """Return the sign of a kind of event, around a point."""
    name = kind.replace(" ", "-") if kind in _SHAPES else "other"
    return f'<path class="m {name}" transform="translate({x:.1f} {y:.1f})" d="{_SHAPES.get(kind, _OTHER)}"/>'


def placed(scale: Scale, low: float, high: float) -> Callable[[float], float]:
    """Return the function from values to places between two; what is outside goes to the edge."""

    def place(value: float) -> float:
        return low + (high - low) * min(1.0, max(0.0, scale.share(value)))

    return place


def _axes(chart: Chart, across: Callable[[float], float], down: Callable[[float], float]) -> list[str]:
    right, low = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for value, text in chart.y.ticks():
        y = down(value)
        parts.append(f'<path class="g" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    parts += axis(chart.x, across, low)
    return parts


def axis(scale: Scale, across: Callable[[float], float], low: float, right: float = WIDTH - RIGHT) -> list[str]:
    """Return the axis along the lower edge."""
    parts = [f'<path class="a" d="M{LEFT} {low}H{right}"/>']
    for value, text in scale.ticks():
        x = across(value)
        parts.append(f'<path class="a" d="M{x:.1f} {low}V{low + 4}"/>')
        parts.append(f'<text x="{x:.1f}" y="{low + 16}" text-anchor="middle">{escape(text)}</text>')
    parts.append(f'<text x="{right}" y="{low + 31}" text-anchor="end">{escape(scale.label)}</text>')
    return parts


def _path(line: Line, across: Callable[[float], float], down: Callable[[float], float]) -> str:
    parts: list[str] = []
    last: float | None = None
    drawn_to = ""
    for x, y, part in zip(line.x.tolist(), line.y.tolist(), line.part.tolist(), strict=True):
        if not (math.isfinite(x) and math.isfinite(y)):
            last = None
            continue
        point = f"{across(x):.1f} {down(y):.1f}"
        if last is None or last != part:
            parts.append(f"M{point}h0")  # a dot, if nothing follows
        elif point != drawn_to:
            parts.append(f"L{point}")
        last, drawn_to = part, point
    return "".join(parts)


def _mark(mark: Mark, across: Callable[[float], float], down: Callable[[float], float]) -> str:
    x = across(mark.x)
    title = f"<title>{escape(mark.text)}</title>"
    if mark.y is None:
        line = f'<path class="v" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        return f'<g class="e r{mark.rank}">{title}{line}{shape(mark.kind, x, TOP - 5)}</g>'
    return f'<g class="e r{mark.rank}">{title}{shape(mark.kind, x, down(mark.y))}</g>'


def spread(values: Sequence[Floats]) -> Floats:
    """Return all finite numbers of several arrays."""
    joined = np.concatenate([np.zeros(0), *values])
    return np.asarray(joined[np.isfinite(joined)])
