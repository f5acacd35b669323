"""How methods scale: accuracy after the same samples, each with the best rate of its own."""

from __future__ import annotations

from benchmarks.study.figures import figure, lines
from benchmarks.study.plan import BASELINE, METHODS, PEERS, Budget
from benchmarks.study.section import Cell, Report, Section, tuned
from benchmarks.study.tables import accuracy, difference, mean, percent, spread, statistic, table

__all__ = ["names", "own"]

#: The methods that are run with every number of peers; the others with 16 alone.
FEW = (BASELINE, "adpsgd", "sgp", "osgp", "sgp, two rounds, mixed, int8", "outer, int2")


def names(peers: int) -> tuple[str, ...]:
    """Return the methods that are run with this number of peers."""
    return tuple(METHODS) if peers == PEERS else FEW


def own(name: str, peers: int, budget: Budget) -> Cell:
    """Return a method with the best rate of its own."""
    method = METHODS[name]
    return Cell(method.run(peers, budget), tuned(method, peers, budget))


def cells(budget: Budget) -> list[Cell]:
    """Return all cells."""
    return [own(name, peers, budget) for peers in budget.sizes for name in names(peers)]


def _by_size(report: Report) -> str:
    rows, drawn, bars = [], [], []
    for name in METHODS:
        row, line, bar = [name], [], []
        for peers in report.budget.sizes:
            cell = own(name, peers, report.budget)
            found = report.of(cell) if name in names(peers) else []
            row.append(f"{accuracy(found)} ({report.rate(cell)})" if found else "-")
            if found:
                line.append((float(peers), mean(found, percent)))
                bar.append(spread([percent(one) for one in found]))
        rows.append(row)
        if name in FEW:
            drawn.append((name, line))
            bars.append(bar)
    tried = ", ".join(f"{rate:g}" for rate in report.budget.trials["sgd"].rates)
    caption = report.caption(
        "Accuracy in % after the same number of samples of all peers together. In brackets the learning rate, the "
        f"best of {tried} by a seed that is not reported. parameter-server's is divided by n."
    )
    text = f"{caption}\n\n{table(['method', *(f'n = {peers}' for peers in report.budget.sizes)], rows)}"
    if report.figures is None or len(report.budget.sizes) == 1:
        return text
    with figure(report.figures / "scale.svg") as axes:
        lines(axes, drawn, bars)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="peers", ylabel="accuracy, %", xticks=report.budget.sizes)
        axes.set_xticklabels([str(n) for n in report.budget.sizes])
        axes.legend(fontsize=6)
    shown = report.picture("scale", "Accuracy against the number of peers", "bars: standard deviations")
    return f"{text}\n\n{shown}"


def _gaps(report: Report) -> str:
    rows = []
    for name in METHODS:
        row = [name]
        for peers in report.budget.sizes:
            baseline = report.of(own(BASELINE, peers, report.budget))
            found = report.of(own(name, peers, report.budget)) if name in names(peers) else []
            row.append(difference(found, baseline))
        cell = own(name, PEERS, report.budget)
        seconds = statistic(report.of(cell), lambda one: one.virtual_seconds, 1)
        rows.append([*row, report.kilobytes(cell), seconds])
    caption = report.caption(
        f"Points of accuracy above {BASELINE}'s with the same seed, each method with the best rate of its own; and "
        f"what it sends and how long it takes with {PEERS} peers."
    )
    head = ["method", *(f"n = {peers}" for peers in report.budget.sizes), "kB per peer and step", "virtual seconds"]
    return f"{caption}\n\n{table(head, rows)}"


def render(report: Report) -> str:
    """Return the tables and the figure."""
    return "\n\n".join(["### Against samples", _by_size(report), "### Against all-reduce", _gaps(report)])


SECTION = Section("scale", cells, render)
