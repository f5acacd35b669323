"""How methods scale: accuracy against samples and against virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.study import outer, samples
from benchmarks.study.figures import figure, lines
from benchmarks.study.plan import ALGORITHMS, FAST, RATES, SLOW, Budget, Network
from benchmarks.study.run import Outcome, Run
from benchmarks.study.section import Report, Section
from benchmarks.study.tables import accuracy, spread, statistic, table

__all__ = ["SETTINGS", "against_time", "runs"]

#: How many peers there are where time is looked at.
PEERS = 16
#: Network and straggler.
SETTINGS: tuple[tuple[Network, bool], ...] = ((FAST, False), (FAST, True), (SLOW, False), (SLOW, True))
_SLOWER = "4x"
#: The rows of the tables of time.
TIMED = (*ALGORITHMS, "osgp, int8", "adpsgd, int8")
#: Accuracies that time is taken to.
TARGET, TARGET_QUICK = 80.0, 70.0
#: Algorithms in the figure.
SHOWN = ("allreduce", "parameter-server", "adpsgd", "sgp", "osgp", "noloco", "osgp, int8")


def against_time(row: str, setting: tuple[Network, bool], seed: int, budget: Budget) -> Run:
    """Return a run on either network, with a straggler or without; the row is an algorithm, and a codec perhaps."""
    network, straggles = setting
    name, _, codec = row.partition(", ")
    base = ALGORITHMS[name].run(PEERS, RATES[0], seed, budget.samples, network)
    # By itself it would choose for a vector of 100 kB on a local network. This one stands for a large one.
    spec = "allreduce:plan=halving" if name == "allreduce" else base.algorithm
    return base.but(algorithm=spec, compress=codec or "none", straggler=f"{PEERS - 1}={_SLOWER}" if straggles else "")


def runs(budget: Budget) -> list[Run]:
    """Return all runs."""
    found = []
    for seed in range(budget.seeds):
        found += [against_time(name, setting, seed, budget) for setting in SETTINGS for name in TIMED]
        found += samples.runs(seed, budget)
        found += outer.runs(seed, budget)
    return found


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


def _times(report: Report) -> str:
    found = {
        (name, setting): report.of(against_time(name, setting, seed, report.budget) for seed in report.seeds)
        for name in TIMED
        for setting in SETTINGS
    }
    head = ["algorithm", *map(_name, SETTINGS)]
    whole = [
        [name, *(statistic(found[name, setting], lambda one: one.virtual_seconds, 1) for setting in SETTINGS)]
        for name in TIMED
    ]
    target = TARGET_QUICK if report.budget.quick else TARGET
    reach = [
        [name, *(statistic(found[name, setting], lambda one: until(one, target), 1) for setting in SETTINGS)]
        for name in TIMED
    ]
    final = [[name, *(accuracy(found[name, setting]) for setting in SETTINGS)] for name in TIMED]
    asked = f"{PEERS} peers, learning rate {RATES[0]:g}."
    titled = {
        f"Virtual seconds for all samples, {asked}": whole,
        f"Virtual seconds until the average model has {target:g}% for good (inf: in no run; in brackets: in how many), "
        f"{asked}": reach,
        f"Accuracy in % at the end of the same runs, {asked}": final,
    }
    parts = [f"{report.caption(title)}\n\n{table(head, rows)}" for title, rows in titled.items()]
    if report.figures is not None:
        with figure(report.figures / "time.svg", columns=2, rows=2, sharey=True) as axes:
            for setting, one in zip(SETTINGS, axes.flat, strict=True):
                ends = [[spread([at.accuracy for at in found[name, setting]])] for name in SHOWN]
                lines(one, [(name, _curve(found[name, setting])) for name in SHOWN], ends)
                one.set(title=_name(setting), xlabel="virtual seconds", ylabel="accuracy, %", ylim=(60, None))
            axes.flat[0].legend()
        parts.append(report.picture("time", "Accuracy against virtual time", "bars: standard deviations at the end"))
    return "\n\n".join(parts)


def _curve(outcomes: Sequence[Outcome]) -> list[tuple[float, float]]:
    """Return the mean of curves that were measured after the same numbers of samples."""
    if not outcomes:
        return []
    points = zip(*(one.curve for one in outcomes), strict=False)
    return [(fmean(p[1] for p in point), fmean(p[2] for p in point)) for point in points]


def render(report: Report) -> str:
    """Return the tables and figures of both, and those of what they left open."""
    parts = [samples.render(report), "### Against time", _times(report)]
    return "\n\n".join([*parts, "### Outer momentum", outer.render(report)])


SECTION = Section("scale", runs, render)
