"""Accuracy and bytes for every codec: what carries mass, what carries gradients and differences, and fewer shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.study.figures import figure
from benchmarks.study.plan import ALGORITHMS, RATES, Algorithm, Budget
from benchmarks.study.run import Outcome, Run
from benchmarks.study.section import Report, Section
from benchmarks.study.tables import accuracy, mean, table

__all__ = ["TABLES", "Case", "Table", "case", "runs"]

PEERS = 16
SHARDS = 8
_MOMENTUM = 0.9


@dataclass(frozen=True)
class Case:
    """How parcels go out."""

    name: str
    compress: str = "none"
    share: float = 1.0
    #: Those of the table's algorithms that it goes with; empty: all.
    only: tuple[str, ...] = ()
    #: Whether momentum is applied before anything is left out, and not by the optimizer.
    corrects: bool = False


@dataclass(frozen=True)
class Table:
    """Codecs by algorithms."""

    title: str
    algorithms: tuple[Algorithm, ...]
    cases: tuple[Case, ...]

    def cells(self) -> list[tuple[Case, Algorithm]]:
        """Return what is run."""
        return [(one, by) for one in self.cases for by in self.algorithms if not one.only or by.name in one.only]


def _plain(*names: str) -> tuple[Case, ...]:
    return tuple(Case(name, name) for name in names)


_SPARSE = ("topk:share=10%,values=int8", "topk:share=1%,values=int8")
TABLES = (
    Table(
        "What mass goes by: codecs, fewer shards (parts of the model) per step, or only the values that changed most",
        (ALGORITHMS["sgp"], ALGORITHMS["adpsgd"]),
        (
            *_plain("none", "bf16", "fp16", "int8", "int4"),
            Case("1/2 of the shards", share=0.5),
            Case("1/4 of the shards", share=0.25),
            Case("int8, 1/2 of the shards", "int8", 0.5),
            Case("int8, 1/4 of the shards", "int8", 0.25),
            *(Case(name, name, only=("adpsgd",)) for name in ("topk-pair:share=10%", "topk-pair:share=1%")),
        ),
    ),
    Table(
        "Gradients (allreduce), and differences on a hypercube (choco; slowmo:differences=true, every 8th step)",
        (
            ALGORITHMS["allreduce"],
            Algorithm("choco", "choco", "hypercube", waits=True),
            Algorithm("slowmo", "slowmo:h=8,differences=true", "hypercube", waits=True),
        ),
        (
            *_plain("none", "bf16", "fp16", "int8", "int4", "qsgd", "terngrad", "sign", "adacomp", *_SPARSE),
            *(Case(f"{name}, corrected", name, only=("allreduce",), corrects=True) for name in _SPARSE),
        ),
    ),
)


def case(one: Case, by: Algorithm, seed: int, budget: Budget) -> Run:
    """Return one run."""
    base = by.run(PEERS, RATES[0], seed, budget.samples)
    if one.corrects:
        base = base.but(algorithm=f"{base.algorithm}:correction={_MOMENTUM}", momentum=0.0)
    return base.but(compress=one.compress, share=one.share, shards=SHARDS if one.share < 1 else 1)


def runs(budget: Budget) -> list[Run]:
    """Return all runs."""
    return [case(one, by, seed, budget) for of in TABLES for seed in range(budget.seeds) for one, by in of.cells()]


def _found(report: Report, of: Table) -> dict[tuple[str, str], list[Outcome]]:
    return {
        (one.name, by.name): report.of(case(one, by, seed, report.budget) for seed in report.seeds)
        for one, by in of.cells()
    }


def render(report: Report) -> str:
    """Return the tables of codecs, and the figure of accuracy against bytes."""
    steps = report.budget.samples / 16

    def sent(one: Outcome) -> float:
        return one.bytes / steps / 1e3

    def kilobytes(outcomes: Sequence[Outcome]) -> str:
        return f"{mean(outcomes, sent):.1f}" if outcomes else "-"

    parts, points = [], []
    for of in TABLES:
        found, names = _found(report, of), [by.name for by in of.algorithms]
        rows = []
        for one in of.cases:
            each = [found.get((one.name, name), []) for name in names]
            rows.append([one.name, *(cell for at in each for cell in (accuracy(at), kilobytes(at)))])
            points += [(name, one.name, at) for name, at in zip(names, each, strict=True) if at]
        caption = report.caption(
            f"{of.title}: accuracy in %, and kB on the wire per peer and step, all overheads included, {PEERS} peers; "
            "the model has 102 kB."
        )
        head = ["codec", *(text for name in names for text in (name, "kB"))]
        parts.append(f"{caption}\n\n{table(head, rows)}")
    text = "\n\n".join(parts)
    if report.figures is None:
        return text
    with figure(report.figures / "compression.svg") as axes:
        for name in dict.fromkeys(name for name, _, _ in points):
            marks = [
                (mean(at, sent), mean(at, lambda one: one.accuracy), codec)
                for by, codec, at in points
                if by == name and not any(one.diverged for one in at)
            ]
            axes.scatter([x for x, _, _ in marks], [y for _, y, _ in marks], s=18, label=name)
            for x, y, label in marks:
                axes.annotate(
                    label.replace("values=", ""), (x, y), fontsize=5, textcoords="offset points", xytext=(3, 3)
                )
        axes.set(xscale="log", xlabel="kB per peer and step", ylabel="accuracy, %")
        axes.legend()
    shown = report.picture("compression", "Accuracy against bytes", "their noise is in the tables")
    return f"{text}\n\n{shown}"


SECTION = Section("compression", runs, render)
