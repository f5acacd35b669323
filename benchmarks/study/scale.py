"""How methods scale: accuracy against samples and against virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.study import outer
from benchmarks.study.figures import figure, lines
from benchmarks.study.plan import ALGORITHMS, FAST, RATES, SLOW, Budget, Network
from benchmarks.study.run import Outcome, Run
from benchmarks.study.section import Report, Section
from benchmarks.study.tables import accuracy, mean, statistic, table

__all__ = ["SETTINGS", "SIZES", "against_samples", "against_time", "runs"]

SIZES = (4, 8, 16, 32)
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


def against_samples(algorithm: str, peers: int, rate: float, seed: int, budget: Budget) -> Run:
    """Return a run on the fast network without a straggler."""
    return ALGORITHMS[algorithm].run(peers, rate, seed, budget.samples)


def against_time(row: str, setting: tuple[Network, bool], seed: int, budget: Budget) -> Run:
    """Return a run on either network, with a straggler or without; the row is an algorithm, and a codec perhaps."""
    network, straggles = setting
    name, _, codec = row.partition(", ")
    base = ALGORITHMS[name].run(PEERS, RATES[0], seed, budget.samples, network)
    # By itself it would choose for a vector of 100 kB on a local network. This one stands for a large one.
    spec = "allreduce:plan=halving" if name == "allreduce" else base.algorithm
    return base.but(algorithm=spec, compress=codec or "none", straggler=f"{PEERS - 1}={_SLOWER}" if straggles else "")


def sizes(budget: Budget) -> tuple[int, ...]:
    """Return how many peers there are."""
    return SIZES[::2] if budget.quick else SIZES


def rates(budget: Budget) -> tuple[float, ...]:
    """Return the learning rates."""
    return RATES[:1] if budget.quick else RATES


def runs(budget: Budget) -> list[Run]:
    """Return all runs."""
    found = []
    for seed in range(budget.seeds):
        found += [against_time(name, setting, seed, budget) for setting in SETTINGS for name in TIMED]
        found += [
            against_samples(name, peers, rate, seed, budget)
            for peers in sizes(budget)
            for rate in rates(budget)
            for name in ALGORITHMS
        ]
        found += outer.runs(seed, budget)
    return found


def better(report: Report, algorithm: str, peers: int) -> tuple[str, list[Outcome]]:
    """Return the learning rate with the better accuracy, or the only one that was run, and its outcomes."""
    found = {
        rate: report.of(against_samples(algorithm, peers, rate, seed, report.budget) for seed in report.seeds)
        for rate in rates(report.budget)
    }
    rate, best = max(found.items(), key=lambda item: mean(item[1], lambda one: one.accuracy) if item[1] else 0.0)
    return f"{rate:g}" if all(found.values()) else f"only {rate:g}", best


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


def _samples(report: Report) -> str:
    rows, drawn = [], []
    for name in ALGORITHMS:
        best = {peers: better(report, name, peers) for peers in sizes(report.budget)}
        rows.append([name, *(f"{accuracy(at)} ({rate})" if at else "-" for rate, at in best.values())])
        drawn.append((name, [(n, mean(at, lambda one: one.accuracy)) for n, (_, at) in best.items() if at]))
    head = ["algorithm", *(f"n = {peers}" for peers in sizes(report.budget))]
    caption = report.caption(
        "Accuracy in % after the same number of samples, whoever computed them. In brackets the learning rate, the "
        f"better of {' and '.join(f'{rate:g}' for rate in rates(report.budget))} by this accuracy; 'only': the other "
        "was not run. parameter-server's is divided by n."
    )
    text = f"{caption}\n\n{table(head, rows)}"
    if report.figures is None:
        return text
    with figure(report.figures / "scale.svg") as axes:
        lines(axes, drawn)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="peers", ylabel="accuracy, %", xticks=sizes(report.budget))
        axes.set_xticklabels([str(n) for n in sizes(report.budget)])
        axes.legend(ncols=2, fontsize=6)
    return f"{text}\n\n{report.picture('scale', 'accuracy against the number of peers')}"


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
        f"Virtual seconds until the average model has {target:g}% for good (inf: not within the run), {asked}": reach,
        f"Accuracy in % at the end of the same runs, {asked}": final,
    }
    parts = [f"{report.caption(title)}\n\n{table(head, rows)}" for title, rows in titled.items()]
    if report.figures is not None:
        with figure(report.figures / "time.svg", columns=2, rows=2, sharey=True) as axes:
            for setting, one in zip(SETTINGS, axes.flat, strict=True):
                lines(one, [(name, _curve(found[name, setting])) for name in SHOWN])
                one.set(title=_name(setting), xlabel="virtual seconds", ylabel="accuracy, %", ylim=(60, None))
            axes.flat[0].legend()
        parts.append(report.picture("time", "accuracy against virtual time"))
    return "\n\n".join(parts)


def _curve(outcomes: Sequence[Outcome]) -> list[tuple[float, float]]:
    """Return the mean of curves that were measured after the same numbers of samples."""
    if not outcomes:
        return []
    points = zip(*(one.curve for one in outcomes), strict=False)
    return [(fmean(p[1] for p in point), fmean(p[2] for p in point)) for point in points]


def render(report: Report) -> str:
    """Return the tables and figures of both."""
    parts = ["### Against samples", _samples(report), "### Against time", _times(report)]
    return "\n\n".join([*parts, "### Outer momentum", outer.render(report)])


SECTION = Section("scale", runs, render)
