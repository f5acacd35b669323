"""A transformer and AdamW: loss, time and bytes, with rates of their own and with all-reduce's."""

from __future__ import annotations

from benchmarks.study.figures import figure, lines
from benchmarks.study.plan import BASELINE, METHODS, Budget, Method
from benchmarks.study.run import Outcome
from benchmarks.study.section import Cell, Report, Section
from benchmarks.study.tables import statistic, table

__all__ = ["ROWS", "carried", "own"]

PEERS = 8
BATCH = 12
#: A step costs thirty times as much CPU time as one of the small network.
_SAMPLES = 1 / 5
#: The outer step is the one that was found to suit AdamW.
ROWS = {
    one.name: one
    for one in (
        METHODS[BASELINE],
        METHODS["sgp"],
        METHODS["osgp"],
        Method("sgp, int8", "sgp", compress="int8"),
        Method("outer, int4", "outer:h=8,mu=0.5,eta=1.0", compress="int4"),
    )
}
#: A codec has the rate of the method without it.
_LIKE = {"sgp, int8": "sgp"}


def _loss(outcome: Outcome) -> float:
    return float("inf") if outcome.diverged else outcome.validation_loss


def own(name: str, budget: Budget) -> Cell:
    """Return a method with the best rate of its own."""
    template = ROWS[name].run(PEERS, budget)
    changed = template.but(
        samples=int(budget.samples * _SAMPLES), batch=BATCH, task="characters-small", optimizer="adamw", clip=1.0
    )
    like = own(_LIKE[name], budget).template if name in _LIKE else None
    return Cell(changed, like)


def carried(name: str, budget: Budget) -> Cell:
    """Return a method with the best rate of all-reduce."""
    return Cell(own(name, budget).template, own(BASELINE, budget).template)


def cells(budget: Budget) -> list[Cell]:
    """Return all cells."""
    return [cell for name in ROWS for cell in (own(name, budget), carried(name, budget))]


def _gap(found: list[Outcome], baseline: list[Outcome]) -> str:
    if not found or len(found) != len(baseline):
        return "-"
    gaps = {id(one): _loss(one) - _loss(other) for one, other in zip(found, baseline, strict=True)}
    return statistic(found, lambda one: gaps[id(one)], 3)


def render(report: Report) -> str:
    """Return the table and the figure."""
    budget = report.budget
    baseline = report.of(own(BASELINE, budget))
    rows, drawn = [], []
    for name in ROWS:
        cell, taken = own(name, budget), carried(name, budget)
        found, over = report.of(cell), report.of(taken)
        row = [name, report.rate(cell), statistic(found, _loss, 3), _gap(found, baseline), _gap(over, baseline)]
        rows.append([*row, report.kilobytes(cell), statistic(found, lambda one: one.virtual_seconds, 1)])
        drawn.append((name, _curve(found)))
    tried = budget.trials["adamw"]
    template = own(BASELINE, budget).template
    caption = report.caption(
        f"Validation loss in nats of a GPT of 108,864 parameters with AdamW, {PEERS} peers, "
        f"{template.samples // template.batch // PEERS} steps of {BATCH} x 64 characters each: with the method's best "
        f"of {', '.join(f'{rate:g}' for rate in tried.rates)}, by {len(tried.seeds)} seeds that are not reported; how "
        f"much it is above {BASELINE}'s with the same seed; and how much with {BASELINE}'s best rate.",
        template.samples,
    )
    head = ["method", "rate", "loss", "gap", f"gap at {BASELINE}'s rate", "kB per peer and step", "virtual seconds"]
    text = f"{caption}\n\n{table(head, rows)}"
    if report.figures is None:
        return text
    with figure(report.figures / "adamw.svg") as axes:
        lines(axes, drawn)
        axes.set(xlabel="kilocharacters per peer", ylabel="validation loss, nats")
        axes.legend(fontsize=6)
    return f"{text}\n\n{report.picture('adamw', 'Loss of a transformer', 'their noise is in the table')}"


def _curve(outcomes: list[Outcome]) -> list[tuple[float, float]]:
    """Return the mean of curves that were measured after the same numbers of samples."""
    points = list(zip(*(one.curve for one in outcomes), strict=False))
    losses = list(zip(*(one.losses for one in outcomes), strict=False))
    return [(point[0][0] * 64 / PEERS / 1e3, sum(loss) / len(loss)) for point, loss in zip(points, losses, strict=True)]


SECTION = Section("adamw", cells, render)
