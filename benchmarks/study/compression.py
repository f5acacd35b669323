"""Accuracy and bytes: what carries mass, what carries gradients and differences, fewer shards, and rare averages."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.study.figures import figure
from benchmarks.study.plan import BASELINE, METHODS, PEERS, Budget, Method
from benchmarks.study.section import Cell, Report, Section
from benchmarks.study.tables import accuracy, difference, mean, percent, table

__all__ = ["ROWS", "Row"]

SHARDS = 8


@dataclass(frozen=True)
class Row:
    """A method and how its parcels go out."""

    method: Method
    compress: str
    #: Of the shards, that a step sends.
    share: float = 1.0

    @property
    def codec(self) -> str:
        """How the table calls it."""
        return self.compress if self.share == 1 else f"{self.compress}, {self.share:.0%} of the shards"

    def cell(self, budget: Budget) -> Cell:
        """Return it with the best rate that the method has without a codec."""
        template = self.method.run(PEERS, budget)
        changed = template.but(
            compress=self.compress, share=self.share, shards=SHARDS if self.share < 1 else template.shards
        )
        if self.method.name == BASELINE and self.compress != "none":
            changed = changed.but(algorithm=BASELINE)  # with a codec it has no plan
        return Cell(changed, template)


_CHOCO = Method("choco, hypercube", "choco", "hypercube")
_SLOWMO = Method("slowmo by differences, hypercube", "slowmo:h=8,differences=true", "hypercube")
_RARE = Method("outer, every 24 steps", "outer:h=24")
_OUTER = Method("outer, every 8 steps", "outer:h=8")
ROWS = (
    *(Row(METHODS[BASELINE], codec) for codec in ("none", "int8", "int4", "sign", "topk:share=10%,values=int8")),
    *(Row(METHODS["sgp"], codec) for codec in ("none", "int8", "int4")),
    Row(METHODS["sgp"], "int8", 0.25),
    *(Row(METHODS["adpsgd"], codec) for codec in ("none", "topk-pair:share=10%", "topk-pair:share=1%")),
    *(Row(_CHOCO, codec) for codec in ("none", "int4", "sign")),
    *(Row(_SLOWMO, codec) for codec in ("none", "sign")),
    *(Row(_OUTER, codec) for codec in ("none", "int4", "int2")),
    *(Row(_RARE, codec) for codec in ("none", "int2")),
)


def cells(budget: Budget) -> list[Cell]:
    """Return all cells."""
    return [row.cell(budget) for row in ROWS]


def render(report: Report) -> str:
    """Return the table, and the figure of accuracy against bytes."""
    budget = report.budget
    whole = report.of(ROWS[0].cell(budget))
    rows, points = [], []
    for row in ROWS:
        cell = row.cell(budget)
        found = report.of(cell)
        fewer = "-"
        if found and whole:
            less = mean(whole, lambda one: one.bytes) / mean(found, lambda one: one.bytes)
            fewer = f"{less:.1f}"
            points.append((row, less, mean(found, percent)))
        gap = difference(found, whole)
        rows.append(
            [row.method.name, row.codec, report.rate(cell), accuracy(found), gap, report.kilobytes(cell), fewer]
        )
    caption = report.caption(
        f"Accuracy in %, its difference to {BASELINE}'s without a codec and with the same seed, kB on the wire "
        f"per peer and step, and how many times fewer than {BASELINE}'s. {PEERS} peers; the model has "
        "102 kB. Each method has the best rate that it has without a codec."
    )
    head = ["method", "codec", "rate", "accuracy", f"to {BASELINE}", "kB", "times fewer"]
    text = f"{caption}\n\n{table(head, rows)}"
    if report.figures is None:
        return text
    with figure(report.figures / "compression.svg") as axes:
        for name in dict.fromkeys(row.method.name for row, _, _ in points):
            marks = [(less, at, row.codec) for row, less, at in points if row.method.name == name]
            axes.scatter([x for x, _, _ in marks], [y for _, y, _ in marks], s=18, label=name)
            for x, y, label in marks:
                axes.annotate(
                    label.replace("values=", ""), (x, y), fontsize=5, textcoords="offset points", xytext=(3, 3)
                )
        axes.set(xscale="log", xlabel=f"times fewer bytes than {BASELINE}", ylabel="accuracy, %")
        axes.legend(fontsize=6)
    shown = report.picture("compression", "Accuracy against bytes", "their noise is in the table")
    return f"{text}\n\n{shown}"


SECTION = Section("compression", cells, render)
