"""Accuracy against virtual time: on a fast and on a slow network, and with a machine that is slow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.study.figures import figure, lines
from benchmarks.study.plan import FAST, METHODS, PEERS, SLOW, Budget, Network
from benchmarks.study.run import Outcome
from benchmarks.study.section import Cell, Report, Section, tuned
from benchmarks.study.tables import accuracy, spread, statistic, table

__all__ = ["SETTINGS", "TIMED", "cell", "until"]

#: Network and straggler.
SETTINGS: tuple[tuple[Network, bool], ...] = ((FAST, False), (FAST, True), (SLOW, False))
_SLOWER = "4x"
#: The rows.
TIMED = (
    "allreduce",
    "parameter-server",
    "adpsgd",
    "sgp",
    "osgp",
    "osgp, int8",
    "sgp, two rounds, mixed, int8",
    "noloco",
    "outer, int2",
)
#: The accuracy that time is taken to.
TARGET, TARGET_QUICK = 83.0, 70.0


def cell(name: str, setting: tuple[Network, bool], budget: Budget) -> Cell:
    """Return a method on either network, with a straggler or without, and the rate that is best without either."""
    network, straggles = setting
    template = METHODS[name].run(PEERS, budget, network)
    straggler = f"{PEERS - 1}={_SLOWER}" if straggles else ""
    return Cell(template.but(straggler=straggler), tuned(METHODS[name], PEERS, budget))


def cells(budget: Budget) -> list[Cell]:
    """Return all cells."""
    return [cell(name, setting, budget) for setting in SETTINGS for name in TIMED]


def until(outcome: Outcome, target: float) -> float:
    """Return the virtual seconds until the accuracy is reached for good, read off the curve; infinity: never."""
    before: tuple[float, float] | None = None
    reached = float("inf")
    for _, seconds, percent in outcome.curve:
        if percent < target:
            reached = float("inf")
        elif reached == float("inf"):
            past, low = before or (0.0, 0.0)
            share = (target - low) / (percent - low) if percent > low else 1.0
            reached = past + share * (seconds - past)
        before = seconds, percent
    return reached


def _name(setting: tuple[Network, bool]) -> str:
    network, straggles = setting
    return f"{network.name}, {'one 4x slower' if straggles else 'equal peers'}"


def _curve(outcomes: Sequence[Outcome]) -> list[tuple[float, float]]:
    """Return the mean of curves that were measured after the same numbers of samples."""
    if not outcomes:
        return []
    points = zip(*(one.curve for one in outcomes), strict=False)
    return [(fmean(p[1] for p in point), fmean(p[2] for p in point)) for point in points]


def render(report: Report) -> str:
    """Return the three tables and the figure."""
    found = {(name, at): report.of(cell(name, at, report.budget)) for name in TIMED for at in SETTINGS}
    head = ["method", *map(_name, SETTINGS)]
    target = TARGET_QUICK if report.budget.quick else TARGET
    whole = [
        [name, *(statistic(found[name, at], lambda it: it.virtual_seconds, 1) for at in SETTINGS)] for name in TIMED
    ]
    reach = [
        [name, *(statistic(found[name, at], lambda it: until(it, target), 1) for at in SETTINGS)] for name in TIMED
    ]
    final = [[name, *(accuracy(found[name, at]) for at in SETTINGS)] for name in TIMED]
    asked = f"{PEERS} peers, each method with its best rate on the fast network with equal peers."
    titled = {
        f"Virtual seconds for all samples, {asked}": whole,
        f"Virtual seconds until the average model has {target:g}% for good (inf: in no run; in brackets: in how many), "
        f"{asked}": reach,
        f"Accuracy in % at the end of the same runs, {asked}": final,
    }
    parts = [f"{report.caption(title)}\n\n{table(head, rows)}" for title, rows in titled.items()]
    shown = [at for at in SETTINGS if any(found[name, at] for name in TIMED)]
    if report.figures is not None and shown:
        with figure(report.figures / "time.svg", columns=len(shown), sharey=True, squeeze=False) as axes:
            for at, one in zip(shown, axes.flat, strict=True):
                ends = [[spread([it.accuracy for it in found[name, at]])] for name in TIMED]
                lines(one, [(name, _curve(found[name, at])) for name in TIMED], ends)
                one.set(title=_name(at), xlabel="virtual seconds", ylabel="accuracy, %", ylim=(60, None))
            axes.flat[0].legend(fontsize=6)
        parts.append(report.picture("time", "Accuracy against virtual time", "bars: standard deviations at the end"))
    return "\n\n".join(parts)


SECTION = Section("time", cells, render)
