"""Accuracy after the same number of samples, by the number of peers and by learning rate."""

from __future__ import annotations

from benchmarks.study.figures import figure, lines
from benchmarks.study.plan import ALGORITHMS, BASELINE, RATES, Budget
from benchmarks.study.run import Outcome, Run
from benchmarks.study.section import Report
from benchmarks.study.tables import accuracy, difference, mean, percent, spread, table

__all__ = ["SIZES", "SWEEP", "case", "render", "runs"]

SIZES = (4, 8, 16, 32)
#: Learning rates, from too low to too high for most. The best of them should be none of the outer ones.
SWEEP = (0.007, *RATES, 0.2)
#: How many peers there are where rates are compared.
PEERS = 16


def case(algorithm: str, peers: int, rate: float, seed: int, budget: Budget) -> Run:
    """Return a run on the fast network without a straggler."""
    return ALGORITHMS[algorithm].run(peers, rate, seed, budget.samples)


def sizes(budget: Budget) -> tuple[int, ...]:
    """Return how many peers there are."""
    return SIZES[::2] if budget.quick else SIZES


def rates(budget: Budget) -> tuple[float, ...]:
    """Return the learning rates."""
    return RATES[:1] if budget.quick else SWEEP


def runs(seed: int, budget: Budget) -> list[Run]:
    """Return the runs of one seed."""
    return [
        case(name, peers, rate, seed, budget)
        for peers in sizes(budget)
        for rate in rates(budget)
        for name in ALGORITHMS
    ]


def _found(report: Report, algorithm: str, peers: int) -> dict[float, list[Outcome]]:
    return {
        rate: report.of(case(algorithm, peers, rate, seed, report.budget) for seed in report.seeds)
        for rate in rates(report.budget)
    }


def best(found: dict[float, list[Outcome]]) -> tuple[float, list[Outcome]]:
    """Return the learning rate with the best mean accuracy, and its outcomes."""
    return max(found.items(), key=lambda item: mean(item[1], percent) if item[1] else 0.0)


def _by_size(report: Report) -> str:
    rows, drawn, bars = [], [], []
    for name in ALGORITHMS:
        chosen = {peers: best(_found(report, name, peers)) for peers in sizes(report.budget)}
        rows.append([name, *(f"{accuracy(at)} ({rate:g})" if at else "-" for rate, at in chosen.values())])
        drawn.append((name, [(n, mean(at, percent)) for n, (_, at) in chosen.items() if at]))
        bars.append([spread([percent(one) for one in at]) for _, at in chosen.values() if at])
    head = ["algorithm", *(f"n = {peers}" for peers in sizes(report.budget))]
    tried = ", ".join(f"{rate:g}" for rate in rates(report.budget))
    caption = report.caption(
        "Accuracy in % after the same number of samples, whoever computed them. In brackets the learning rate, that "
        f"with the best such accuracy of {tried}. parameter-server's is divided by n."
    )
    text = f"{caption}\n\n{table(head, rows)}"
    if report.figures is None:
        return text
    with figure(report.figures / "scale.svg") as axes:
        lines(axes, drawn, bars)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="peers", ylabel="accuracy, %", xticks=sizes(report.budget))
        axes.set_xticklabels([str(n) for n in sizes(report.budget)])
        axes.legend(ncols=2, fontsize=6)
    shown = report.picture("scale", "Accuracy against the number of peers", "bars: standard deviations")
    return f"{text}\n\n{shown}"


def _by_rate(report: Report) -> str:
    baseline = best(_found(report, BASELINE, PEERS))[1]
    rows = []
    for name in ALGORITHMS:
        found = _found(report, name, PEERS)
        rows.append([name, *map(accuracy, found.values()), difference(best(found)[1], baseline)])
    head = ["algorithm", *(f"{rate:g}" for rate in rates(report.budget)), f"best, to {BASELINE}'s best"]
    caption = report.caption(
        f"Accuracy in % by learning rate, {PEERS} peers; and how far the best is from {BASELINE}'s best with the same "
        "seed, so that what a seed does to all of them is not in it."
    )
    return f"{caption}\n\n{table(head, rows)}"


def render(report: Report) -> str:
    """Return the tables and the figure."""
    return "\n\n".join(["### Against samples", _by_size(report), "### Learning rates", _by_rate(report)])
