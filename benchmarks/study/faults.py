"""Lost messages, machines that come and go, and unequal data."""

from __future__ import annotations

from benchmarks.study.plan import BASELINE, METHODS, PEERS, Budget, Method
from benchmarks.study.section import Cell, Report, Section
from benchmarks.study.tables import accuracy, difference, mean, number, table

__all__ = ["LOSS", "UNEQUAL", "calm", "churn", "loss", "unequal"]

LOSS = 0.1
DIRICHLET = 0.1
#: The rows of the tables of faults.
NAMES = (BASELINE, "adpsgd", "sgp", "osgp", "sgp, two rounds, mixed, int8", "outer, int2")
#: The rows of the table of unequal data.
UNEQUAL = {
    one.name: one
    for one in (
        *(METHODS[name] for name in NAMES),
        Method("sgp, mixed", "sgp:momentum=mixed"),
        Method("sgp, quasi-global", "sgp:momentum=quasi-global"),
    )
}
#: Peers that die and when, and when they come back, in shares of the run.
_DEATHS = ((1, 0.2, 0.4), (5, 0.3, 0.5), (9, 0.4, 0.6), (13, 0.5, 0.7))


def calm(name: str, budget: Budget) -> Cell:
    """Return a method without faults."""
    return Cell(METHODS[name].run(PEERS, budget))


def loss(name: str, budget: Budget) -> Cell:
    """Return a method whose messages are lost, with its best rate without loss."""
    template = METHODS[name].run(PEERS, budget)
    return Cell(template.but(loss=LOSS), template)


def churn(name: str, budget: Budget) -> Cell:
    """Return a method of which a quarter of the peers dies, one after the other, and each comes back later."""
    template = METHODS[name].run(PEERS, budget)
    nominal = template.step_seconds * budget.samples / template.batch / PEERS
    kills = ",".join(f"{rank}@{begin * nominal:.1f}s" for rank, begin, _ in _DEATHS)
    restarts = ",".join(f"{rank}@{end * nominal:.1f}s" for rank, _, end in _DEATHS)
    return Cell(template.but(kills=kills, restarts=restarts), template)


def unequal(name: str, budget: Budget) -> Cell:
    """Return a method with data that is dealt out unequally, and a rate that was chosen with such data."""
    return Cell(UNEQUAL[name].run(PEERS, budget).but(dirichlet=DIRICHLET))


def cells(budget: Budget) -> list[Cell]:
    """Return all cells."""
    return [
        *(unequal(name, budget) for name in UNEQUAL),
        *(of(name, budget) for of in (calm, loss, churn) for name in NAMES),
    ]


def _unequal(report: Report) -> str:
    budget = report.budget
    baseline = report.of(unequal(BASELINE, budget))
    rows = []
    for name in UNEQUAL:
        cell = unequal(name, budget)
        found = report.of(cell)
        gap = difference(found, baseline)
        rows.append([name, report.rate(cell), accuracy(found), gap, report.kilobytes(cell)])
    caption = report.caption(
        f"Accuracy in % with data dealt out by Dirichlet({DIRICHLET:g}), {PEERS} peers, each method with the best of "
        f"the same rates for such data; and its difference to {BASELINE}'s with the same seed and so the same deal."
    )
    return f"{caption}\n\n{table(['method', 'rate', 'accuracy', f'to {BASELINE}', 'kB per peer and step'], rows)}"


def _faults(report: Report) -> str:
    budget = report.budget
    rows = []
    for name in NAMES:
        each = [report.of(of(name, budget)) for of in (calm, loss, churn)]
        whole, *worse = (mean(found, lambda one: one.virtual_seconds) for found in each)
        times = [number(seconds / whole) for seconds in worse]
        rows.append([name, accuracy(each[0]), accuracy(each[1]), times[0], accuracy(each[2]), times[1]])
    caption = report.caption(
        f"Accuracy in % where {LOSS:.0%} of the messages are lost, and where 4 of {PEERS} peers are killed, one by "
        "one, and come back a fifth of the run later; and the time relative to that without faults. Each method has "
        "its best rate without faults."
    )
    head = ["method", "no fault", f"{LOSS:.0%} lost", "time", "4 die and come back", "time"]
    return f"{caption}\n\n{table(head, rows)}"


def render(report: Report) -> str:
    """Return the two tables."""
    return "\n\n".join(["### Unequal data", _unequal(report), "### Lost messages, deaths and returns", _faults(report)])


SECTION = Section("faults", cells, render)
