"""Update rules where w is not 1: which diverge, and when."""

from __future__ import annotations

from typing import Any

from benchmarks.study.plan import METHODS, PEERS, SLOW, Budget
from benchmarks.study.rules import RULES
from benchmarks.study.section import Cell, Report, Section
from benchmarks.study.tables import accuracy, table

__all__ = ["CONDITIONS", "cell"]

_OPEN = {"weight_floor": 0.0, "weight_cap": 1e6}
_LATE = {"delay": (0.2, 0.4)}

#: What the swarm is like: the method, and what is different from a run of it without trouble.
CONDITIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgp, 10% lost": ("sgp", {"loss": 0.1}),
    "osgp:tau=4, 2 to 4 steps late": ("osgp", {"algorithm": "osgp:tau=4", **_LATE}),
    "adpsgd, slow link": ("adpsgd", {"megabits": SLOW.megabits, "delay": SLOW.delay}),
    "random targets, no floor, no cap": ("gossip-push", _OPEN),
    "random, 10% lost, 2 to 4 steps late": ("gossip-push", {"loss": 0.1, **_LATE}),
}


def cell(condition: str, rule: str, budget: Budget) -> Cell:
    """Return a rule in a condition, with the best rate that the method has without trouble."""
    name, different = CONDITIONS[condition]
    template = METHODS[name].run(PEERS, budget)
    return Cell(template.but(rule=rule, **different), template)


def cells(budget: Budget) -> list[Cell]:
    """Return all cells."""
    return [cell(condition, rule, budget) for condition in CONDITIONS for rule in RULES]


def render(report: Report) -> str:
    """Return the table of rules and conditions."""
    rows = []
    for condition in CONDITIONS:
        each = {rule: cell(condition, rule, report.budget) for rule in RULES}
        found = {rule: report.of(one) for rule, one in each.items()}
        steady = found["z-step"]
        weights = (
            f"{min(one.weight_min for one in steady):.2g} to {max(one.weight_max for one in steady):.2g}"
            if steady
            else "-"
        )
        rows.append([condition, report.rate(each["z-step"]), weights, *(accuracy(found[rule]) for rule in RULES)])
    caption = report.caption(
        f"Accuracy in % by update rule, {PEERS} peers; w is what peers held when they trained. The rate is the "
        "method's best without trouble."
    )
    return f"{caption}\n\n{table(['condition', 'rate', 'w', *RULES], rows)}"


SECTION = Section("updates", cells, render)
