"""Figures as small SVG files; the same numbers make the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Line", "figure", "lines"]

#: Label, and points.
Line = tuple[str, Sequence[tuple[float, float]]]


@contextmanager
def figure(path: Path, columns: int = 1, rows: int = 1, **options: Any) -> Iterator[Any]:
    """Draw on axes, or an array of them, and write the file at the end."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "study",
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "legend.fontsize": 8,
    }
    with mpl.rc_context(style):
        drawn, axes = plt.subplots(rows, columns, figsize=(4.4 * columns + 0.6, 2.9 * rows + 0.3), **options)
        yield axes
        drawn.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(drawn)
    # What matplotlib leaves at the ends of lines, checkers of white space find.
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


def lines(axes: Any, drawn: Sequence[Line], bars: Sequence[Sequence[float]] = ()) -> None:
    """Draw lines, each in a colour and with a mark of its own, and with bars of these half lengths, if there are any.

    A line that has fewer bars than points has them at its last points.
    """
    marks = "os^vD*<>Pp"
    for index, (label, points) in enumerate(drawn):
        if points:
            xs, ys = zip(*points, strict=True)
            mark = marks[index % len(marks)]
            colour, line = f"C{index % 10}", "--" if index >= 10 else "-"  # there are ten colours
            axes.plot(xs, ys, line, marker=mark, markersize=3.5, linewidth=1.2, color=colour, label=label)
            if bars and bars[index]:
                last = len(bars[index])
                axes.errorbar(
                    xs[-last:], ys[-last:], bars[index], fmt="none", ecolor=colour, elinewidth=0.7, capsize=1.5
                )
