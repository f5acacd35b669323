"""A picture of a plan: what each split costs over the rows of a crew, as in the figures of the paper."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from gossip.costs.choosing_splits import SplitChoice, seconds_text
from gossip.costs.predictions import Prediction

__all__ = ["figure"]


def figure(choice: SplitChoice) -> Figure:
    """Draw the seconds of communication, and those of a step, over P_r: a line for each kind, the best marked."""
    picture = Figure(figsize=(11, 4.8), dpi=110)
    panels = picture.subplots(1, 2)
    _draw(panels[0], choice, "communication")
    _draw(panels[1], choice, "step")
    machine = choice.machine
    hosts = "1 host" if len(machine.hosts) == 1 else f"{len(machine.hosts)} hosts"
    picture.suptitle(f"{machine.processes} processes on {hosts}, a batch of {choice.job.batch} samples", fontsize=11)
    picture.subplots_adjust(left=0.08, right=0.98, top=0.84, bottom=0.13, wspace=0.22)
    return picture


def _draw(axes: Axes, choice: SplitChoice, what: str) -> None:
    splits = [split for split in choice.splits if split.memory is not None]
    rows = sorted({split.grid.rows for split in choice.splits})
    kinds = list(dict.fromkeys(split.kind for split in splits if split.kind != "data"))
    whole = [split for split in splits if split.kind == "data"]
    for number, kind in enumerate(kinds or ["data"]):
        line = whole + [split for split in splits if split.kind == kind != "data"]
        axes.plot(
            [split.grid.rows for split in line],
            [_value(split, what) for split in line],
            marker="o",
            # Often the exchange across decides, and lines coincide: the wider ones below show beside those above.
            linewidth=1.2 + 1.2 * (len(kinds) - 1 - number),
            markersize=4 + 2 * (len(kinds) - number),
            color=f"C{number}",
            label=kind,
        )
    over = [split for split in splits if not split.fits]
    if over:
        points = [split.grid.rows for split in over], [_value(split, what) for split in over]
        axes.plot(*points, "x", color="black", markersize=8, label="needs too much memory")
    if choice.best is not None:
        axes.plot(
            [choice.best.grid.rows],
            [_value(choice.best, what)],
            "o",
            markersize=18,
            fillstyle="none",
            color="black",
            label=f"best: {choice.best}",
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(rows))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(rows, [f"{n}x{choice.machine.processes // n}" for n in rows], fontsize=8)
    if any(_value(split, what) > 0 for split in splits):
        axes.set_yscale("log")
        for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            which(FuncFormatter(lambda value, _: seconds_text(value)))
        axes.tick_params(which="both", axis="y", labelsize=8)
    axes.set(xlabel="grid: rows of a crew x replicas", ylabel=f"time of {'a step' if what == 'step' else what}")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize=8)


def _value(split: Prediction, what: str) -> float:
    return split.step if what == "step" else split.communication
