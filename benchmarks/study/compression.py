"""Accuracy and bytes for every codec that can carry mass, and for fewer shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.study.figures import figure
from benchmarks.study.plan import ALGORITHMS, RATES, Budget
from benchmarks.study.run import Outcome, Run
from benchmarks.study.section import Report, Section
from benchmarks.study.tables import accuracy, mean, statistic, table

__all__ = ["CASES", "Case", "case", "runs"]

PEERS = 16
SHARDS = 8


@dataclass(frozen=True)
class Case:
    """How parcels go out."""

    name: str
    compress: str = "none"
    share: float = 1.0
    #: The algorithms that it goes with.
    algorithms: tuple[str, ...] = ("sgp", "adpsgd")


_ALL = ("sgp", "adpsgd", "allreduce")

#: In the order of the table: first what mass can go by, then what is for differences and gradients.
CASES = (
    Case("none", algorithms=_ALL),
    Case("bf16", "bf16", algorithms=_ALL),
    Case("fp16", "fp16", algorithms=_ALL),
    Case("int8", "int8", algorithms=_ALL),
    Case("int4", "int4", algorithms=_ALL),
    Case("1/2 of the shards", share=0.5),
    Case("1/4 of the shards", share=0.25),
    Case("int8, 1/2 of the shards", "int8", 0.5),
    Case("int8, 1/4 of the shards", "int8", 0.25),
    *(Case(name, name, algorithms=("adpsgd",)) for name in ("topk-pair:share=10%", "topk-pair:share=1%")),
    *(Case(name, name, algorithms=("allreduce",)) for name in ("sign", "topk:share=10%,values=int8")),
)


def case(one: Case, algorithm: str, seed: int, budget: Budget) -> Run:
    """Return one run."""
    base = ALGORITHMS[algorithm].run(PEERS, RATES[0], seed, budget.samples)
    return base.but(compress=one.compress, share=one.share, shards=SHARDS if one.share < 1 else 1)


def runs(budget: Budget) -> list[Run]:
    """Return all runs."""
    return [
        case(one, algorithm, seed, budget)
        for seed in range(budget.seeds)
        for one in CASES
        for algorithm in one.algorithms
    ]


def render(report: Report) -> str:
    """Return the table of codecs, and the figure of accuracy against bytes."""
    budget = report.budget
    names = list(dict.fromkeys(name for one in CASES for name in one.algorithms))
    found = {
        (one.name, name): report.of(case(one, name, seed, budget) for seed in report.seeds)
        for one in CASES
        for name in one.algorithms
    }
    steps = budget.samples / 16

    def kilobytes(outcomes: Sequence[Outcome]) -> str:
        return statistic(outcomes, lambda one: one.bytes / steps / 1e3, 1) if outcomes else "-"

    rows = []
    for one in CASES:
        each = [found.get((one.name, name), []) for name in names]
        rows.append([one.name, *(cell for at in each for cell in (accuracy(at), kilobytes(at)))])
    head = ["parcels", *(text for name in names for text in (f"{name}: accuracy %", f"{name}: kB per peer and step"))]
    caption = report.caption(
        f"Accuracy and bytes on the wire, all overheads included, {PEERS} peers; the model has 102 kB."
    )
    text = f"{caption}\n\n{table(head, rows)}"
    if report.figures is None:
        return text
    with figure(report.figures / "compression.svg") as axes:
        for name in names:
            points = [
                (mean(at, lambda one: one.bytes / steps / 1e3), mean(at, lambda one: one.accuracy), one.name)
                for one in CASES
                if (at := found.get((one.name, name)))
            ]
            axes.scatter([x for x, _, _ in points], [y for _, y, _ in points], s=18, label=name)
            for x, y, label in points:
                axes.annotate(label, (x, y), fontsize=6, textcoords="offset points", xytext=(3, 3))
        axes.set(xscale="log", xlabel="kB per peer and step", ylabel="accuracy, %")
        axes.legend()
    return f"{text}\n\n{report.picture('compression', 'accuracy against bytes')}"


SECTION = Section("compression", runs, render)
