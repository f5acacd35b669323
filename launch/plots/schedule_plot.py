"""Pictures of a schedule: one panel a step, the peers on a circle."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection, LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from launch.catalog.edge_list import ListedLink, fraction_text, links_at, shown_steps, value_text
from launch.user_errors import CommandError
from topologies import Schedule

__all__ = ["figure", "save"]

Points = npt.NDArray[np.float64]

_COLUMNS = 4
_MOST_PANELS = 48
_MOST_LINKS = 50_000
#: The most fractions that the legend names.
_NAMED = 6


def figure(schedule: Schedule, steps: int | None = None) -> Figure:
    """Draw the steps of a period, or the first ``steps`` steps; the title says which."""
    count, which = shown_steps(schedule, steps)
    if count > _MOST_PANELS:
        raise CommandError(
            f"--plot: a picture has room for {_MOST_PANELS} steps, not {count}; choose a smaller --steps"
        )
    panels = [links_at(schedule, step) for step in range(count)]
    if sum(len(links) for links in panels) > _MOST_LINKS:
        raise CommandError(
            f"--plot: {schedule.name} of {schedule.n} peers has too many links to draw; choose a smaller -n"
        )
    styles = _Styles(panels, schedule.n)
    columns = {1: 1, 2: 2, 4: 2, 3: 3, 5: 3, 6: 3, 9: 3}.get(count, _COLUMNS)
    rows = math.ceil(count / columns)
    side = 6.0 if count == 1 else 4.0 if columns <= 2 or schedule.n > 20 else 3.4
    head, foot = 0.75, 0.6  # inches, for the title and for the legend
    size = (max(columns * side, 6.0), rows * side + head + foot)
    result = Figure(figsize=size, dpi=110)
    result.suptitle(_title(schedule, which), fontsize=11, y=1 - 0.12 / size[1], va="top")
    grid = result.subplots(rows, columns, squeeze=False)
    result.subplots_adjust(
        left=0.01, right=0.99, bottom=foot / size[1], top=1 - head / size[1], wspace=0.02, hspace=0.1
    )
    for step, axes in enumerate(grid.flat):
        axes.set_axis_off()
        if step < count:
            if count > 1:
                axes.set_title(f"step {step}", fontsize=10, pad=2)
            _draw(axes, schedule.n, panels[step], styles)
    _legend(result, schedule.n, panels, styles)
    return result


def save(picture: Figure, path: Path) -> None:
    """Write a figure as its file name says; the same figure gives the same bytes."""
    kind = path.suffix.lower().removeprefix(".")
    undated = {"Date": None} if kind == "svg" else {"Software": None}
    try:
        with mpl.rc_context({"svg.hashsalt": "gossip", "svg.fonttype": "none"}):
            picture.savefig(path, format=kind, metadata=undated, facecolor="white")
    except OSError as error:
        raise CommandError(f"--plot {path}: the file cannot be written: {error.strerror or error}") from error


class _Styles:
    """A colour and a width for every fraction: the larger, the darker and the wider."""

    def __init__(self, panels: list[list[ListedLink]], n: int) -> None:
        # Equal up to rounding is equal.
        distinct = {_key(link.fraction): link.fraction for links in panels for link in links}
        self.fractions = [distinct[key] for key in sorted(distinct)]
        self._places = {key: place for place, key in enumerate(sorted(distinct))}
        # Lines that cross in great number are distinguishable only if they are thin.
        most = max((len(links) for links in panels), default=0)
        self._thin = min(1.0, 14 / max(n, 1)) * min(1.0, 2.0 * n / max(most, 1))
        self.head = max(0.5, min(1.0, 2.5 * n / max(most, 1)))
        self.alpha = max(0.25, min(0.9, 4.0 * n / max(most, 1)))

    def colour(self, fraction: float) -> tuple[float, float, float, float]:
        """Return the colour of a fraction by its place among all."""
        last = len(self.fractions) - 1
        place = self._places[_key(fraction)] / last if last else 0.8
        return mpl.colormaps["plasma_r"](0.25 + 0.7 * place)

    def width(self, fraction: float) -> float:
        """Return the line width of a fraction, relative to the largest."""
        return 0.4 + (0.5 + 1.6 * fraction / self.fractions[-1]) * self._thin


def _key(fraction: float) -> float:
    return round(fraction, 9)


def _draw(axes: Axes, n: int, links: list[ListedLink], styles: _Styles) -> None:
    angles = np.pi / 2 - 2 * np.pi * np.arange(n) / n  # rank 0 on top, then clockwise
    at = np.stack([np.cos(angles), np.sin(angles)], axis=1) * (1.0 if n > 1 else 0.0)
    radius = min(0.07, 0.3 * math.sin(math.pi / n)) if n > 1 else 0.07
    lines, heads = [], []
    pairs = {(link.tail, link.head) for link in links}
    for link in links:
        curve = _curve(at, link, radius, aside=(link.head, link.tail) in pairs)
        if not link.both:
            length = min(0.09, 2.2 * radius) * styles.head
            tip = curve[-1].copy()
            ahead = (tip - curve[-2]) / np.linalg.norm(tip - curve[-2]) * length
            across = np.array([-ahead[1], ahead[0]]) * 0.4
            heads.append([tip, tip - ahead + across, tip - ahead - across])
            # The line ends inside the head, lest it be seen at the tip.
            outside = np.linalg.norm(curve - tip, axis=1) > length
            curve = np.concatenate([curve[outside], [tip - 0.8 * ahead]])
        lines.append(curve)
    colours = [styles.colour(link.fraction) for link in links]
    widths = [styles.width(link.fraction) for link in links]
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=widths, alpha=styles.alpha, zorder=1))
    headed = [colour for colour, link in zip(colours, links, strict=True) if not link.both]
    axes.add_collection(PolyCollection(heads, facecolors=headed, linewidths=0, zorder=2))
    busy = _busy(links)
    diameters = [2 * radius] * n
    axes.add_collection(
        EllipseCollection(
            diameters,
            diameters,
            [0.0] * n,
            units="xy",
            offsets=at,
            offset_transform=axes.transData,
            facecolors=["#333333" if rank in busy else "white" for rank in range(n)],
            edgecolors="#333333",
            linewidths=0.8 if n <= 64 else 0.3,
            zorder=3,
        )
    )
    every = math.ceil(n / 64)  # more labels than that would overlap
    for rank in range(0, n, every):
        x, y = at[rank] * (1 + radius + 0.08) if n > 1 else (0.0, -0.2)
        axes.text(x, y, str(rank), ha="center", va="center", fontsize=9 if n <= 20 else 7 if n <= 40 else 5.5)
    axes.set(xlim=(-1.22, 1.22), ylim=(-1.22, 1.22), aspect="equal")


def _busy(links: list[ListedLink]) -> set[int]:
    return {rank for link in links for rank in (link.tail, link.head)}


def _curve(at: Points, link: ListedLink, radius: float, aside: bool) -> Points:
    """Return the points of a link's line from rim to rim.

    A short hop's chord would run through the peers that it skips, so it bends inwards, the farther the more
    it skips. Two unequal ways between the same peers run beside each other.
    """
    tail, head = at[link.tail], at[link.head]
    n = len(at)
    hop = min((link.head - link.tail) % n, (link.tail - link.head) % n)
    middle = (tail + head) / 2
    height = math.cos(math.pi * hop / n)  # of the chord's middle above the circle's centre
    wanted = 1 - min(0.5, 0.08 * hop) if hop > 1 else 1.0
    # A quadratic Bezier curve passes half way between its chord's middle and its control point.
    control = middle * (2 * wanted - height) / height if wanted < height else middle
    direction = (head - tail) / np.linalg.norm(head - tail)
    shift = np.array([direction[1], -direction[0]]) * radius * (0.5 if aside else 0.0)
    t = np.linspace(0, 1, 16)[:, None]
    start = tail + (control - tail) / np.linalg.norm(control - tail) * radius + shift
    end = head + (control - head) / np.linalg.norm(control - head) * radius + shift
    curve: Points = (1 - t) ** 2 * start + 2 * t * (1 - t) * (control + shift) + t**2 * end
    return curve


def _legend(result: Figure, n: int, panels: list[list[ListedLink]], styles: _Styles) -> None:
    count = len(styles.fractions)
    chosen = sorted({round(i * (count - 1) / (_NAMED - 1)) for i in range(_NAMED)}) if count else []
    named = [styles.fractions[i] for i in chosen]
    handles = [
        Line2D([], [], color=styles.colour(f), linewidth=styles.width(f) + 0.6, label=fraction_text(f)) for f in named
    ]
    if not handles:
        return
    some = "" if len(named) == count else f" ({len(named)} of {count} fractions)"
    both = any(link.both for links in panels for link in links)
    oneway = any(not link.both for links in panels for link in links)
    arrows = "plain line: both ways; arrow: one way" if both and oneway else "each way" if both else "one way"
    idle = "; white: idle in this step" if any(len(_busy(links)) < n for links in panels) else ""
    title = f"fraction sent{some}, {arrows}; the rest is kept{idle}"
    result.legend(
        handles=handles,
        title=title,
        title_fontsize=8,
        fontsize=9,
        loc="lower center",
        ncols=_NAMED,
        frameon=False,
    )


def _title(schedule: Schedule, which: str) -> str:
    known = [f"{key}={value_text(value)}" for key, value in schedule.parameters.items() if value is not None]
    values = ", ".join(text if len(text) <= 40 else f"{text[:36]} ..." for text in known)
    peers = "1 peer" if schedule.n == 1 else f"{schedule.n} peers"
    return f"{schedule.name}{f' ({values})' if values else ''}, {peers}\n{which}"
