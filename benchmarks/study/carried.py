"""Hyper-parameters that are taken over from all-reduce: every method with all-reduce's best rate."""

from __future__ import annotations

from benchmarks.study.plan import BASELINE, METHODS, Budget
from benchmarks.study.scale import names, own
from benchmarks.study.section import Cell, Report, Section
from benchmarks.study.tables import accuracy, difference, table

__all__ = ["carried"]


def carried(name: str, peers: int, budget: Budget) -> Cell:
    """Return a method with the best rate of all-reduce."""
    return Cell(METHODS[name].run(peers, budget), METHODS[BASELINE].run(peers, budget))


def cells(budget: Budget) -> list[Cell]:
    """Return all cells."""
    return [carried(name, peers, budget) for peers in budget.sizes for name in names(peers)]


def render(report: Report) -> str:
    """Return the table."""
    budget = report.budget
    rows = []
    for name in METHODS:
        row = [name]
        for peers in budget.sizes:
            found = report.of(carried(name, peers, budget)) if name in names(peers) else []
            row += [accuracy(found), difference(found, report.of(own(BASELINE, peers, budget)))]
        rows.append(row)
    caption = report.caption(
        f"Accuracy in % with {BASELINE}'s best rate, taken over as it is, and its difference to {BASELINE}'s with the "
        "same seed. parameter-server's rate is divided by n."
    )
    rates = (report.rate(own(BASELINE, peers, budget)) for peers in budget.sizes)
    head = [f"n = {peers}, rate {rate}" for peers, rate in zip(budget.sizes, rates, strict=True)]
    return f"{caption}\n\n{table(['method', *(text for one in head for text in (one, 'gap'))], rows)}"


SECTION = Section("carried", cells, render)
