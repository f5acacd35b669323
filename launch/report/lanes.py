"""The time line of the ranks: a bar for each life, with what happened to it."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from launch.report.axes import time_scale
from launch.report.run_directory import Event, Rank, Run
from launch.report.svg import LEFT, RIGHT, axis, placed, shape
from launch.report.time_axis import TimeLine, lives

__all__ = ["lanes", "skipped"]

_TOP = 8
#: With more ranks than this the bars are thin.
_FEW = 16
#: Two signs of a kind that are nearer than this are one.
_NEAR = 6.0


def lanes(run: Run, line: TimeLine, width: int) -> str:
    """Return the time line as SVG; a narrow and a wide one take turns on a page, by how much room there is."""
    few = len(run.ranks) <= _FEW
    row = 22 if few else 11
    low = _TOP + row * len(run.ranks) + 4
    scale, name = time_scale(line.length), f"lanes-{width}"
    across = placed(scale, LEFT, width - RIGHT)
    parts = [
        f'<svg class="w{width}" viewBox="0 0 {width} {low + 36}" role="img" aria-labelledby="{name}-t {name}-d">',
        f'<title id="{name}-t">What happened to each rank</title>',
        f'<desc id="{name}-d">{escape(_described(run))}</desc>',
        *axis(scale, across, low, width - RIGHT),
    ]
    for index, rank in enumerate(run.ranks):
        middle = _TOP + row * (index + 0.5)
        parts.append(f'<g class="e r{rank.rank}">')
        if few or index % 2 == 0:
            label = f"rank {rank.rank}" if few else str(rank.rank)
            parts.append(f'<text x="{LEFT - 6}" y="{middle + 4:.1f}" text-anchor="end">{label}</text>')
        for begin, end in lives(rank):
            left, right = across(line.moment(begin)), across(line.moment(end))
            parts.append(
                f'<rect class="b" x="{left:.1f}" y="{middle - row * 0.32:.1f}" width="{max(2.0, right - left):.1f}" '
                f'height="{row * 0.64:.1f}" rx="3"/>'
            )
        for event, times in _thinned(rank, lambda time: across(line.moment(time)), skipped(run)):
            assert event.time is not None
            more = f" (and {times - 1} more near by)" if times > 1 else ""
            text = f"rank {rank.rank}, {line.moment(event.time):.3g} s: {event.kind}: {event.text}{more}"
            sign = shape(event.kind, across(line.moment(event.time)), middle)
            parts.append(f"<g><title>{escape(text)}</title>{sign}</g>")
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"])


def skipped(run: Run) -> set[str]:
    """Return the kinds of events that get no sign: with many ranks there is no room for frequent events."""
    return {"start", "note", "metrics", "member", "left", "welcomed"} | (
        set() if len(run.ranks) <= _FEW else {"warning", "consensus"}
    )


def _thinned(rank: Rank, across: Callable[[float], float], without: set[str]) -> list[tuple[Event, int]]:
    """Return the events that get a sign, and how many each stands for."""
    found: list[tuple[Event, int]] = []
    latest: dict[str, tuple[float, int]] = {}
    for event in rank.events:
        if event.time is None or event.kind in without:
            continue
        x = across(event.time)
        if event.kind in latest and abs(x - latest[event.kind][0]) < _NEAR:
            place = latest[event.kind][1]
            found[place] = (found[place][0], found[place][1] + 1)
        else:
            latest[event.kind] = (x, len(found))
            found.append((event, 1))
    return found


def _described(run: Run) -> str:
    counts: dict[str, int] = {}
    for rank in run.ranks:
        for event in rank.events:
            counts[event.kind] = counts.get(event.kind, 0) + 1
    return f"{len(run.ranks)} ranks. Events: " + ", ".join(f"{count} x {kind}" for kind, count in counts.items())
