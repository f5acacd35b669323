"""Update rules where w is not 1: which diverge, and when."""

from __future__ import annotations

from benchmarks.study.plan import RATES, SLOW, Budget
from benchmarks.study.rules import RULES
from benchmarks.study.run import Run
from benchmarks.study.section import Report, Section
from benchmarks.study.tables import accuracy, table

__all__ = ["CONDITIONS", "case", "runs"]

PEERS = 16
_OPEN = {"weight_floor": 0.0, "weight_cap": 1e6}
_LATE = {"delay": (0.2, 0.4)}

#: What the swarm is like: algorithm, topology and what else.
CONDITIONS: dict[str, dict[str, object]] = {
    "w = 1: sgp, nothing lost or late": {"algorithm": "sgp", "topology": "one-peer-exponential"},
    "sgp, 10% lost": {"algorithm": "sgp", "topology": "one-peer-exponential", "loss": 0.1},
    "osgp:tau=4, 2 to 4 steps late": {"algorithm": "osgp:tau=4", "topology": "one-peer-exponential", **_LATE},
    "adpsgd, slow link": {
        "algorithm": "adpsgd",
        "topology": "random-matching",
        "megabits": SLOW.megabits,
        "delay": SLOW.delay,
    },
    "random targets, no floor, no cap": {"algorithm": "gossip-push", "topology": "epidemic", **_OPEN},
    "random targets": {"algorithm": "gossip-push", "topology": "epidemic"},
    "random, 10% lost, 2 to 4 steps late, no floor, no cap": {
        "algorithm": "gossip-push",
        "topology": "epidemic",
        "loss": 0.1,
        **_LATE,
        **_OPEN,
    },
    "random, 10% lost, 2 to 4 steps late": {
        "algorithm": "gossip-push",
        "topology": "epidemic",
        "loss": 0.1,
        **_LATE,
    },
}


def case(condition: str, rule: str, rate: float, seed: int, budget: Budget) -> Run:
    """Return one run."""
    base = Run("sgp", "one-peer-exponential", PEERS, rate, seed, budget.samples)
    return base.but(rule=rule, **CONDITIONS[condition])


def runs(budget: Budget) -> list[Run]:
    """Return all runs."""
    return [
        case(condition, rule, rate, seed, budget)
        for seed in range(budget.seeds)
        for condition in CONDITIONS
        for rate in (RATES[1:] if budget.quick else RATES)
        for rule in RULES
    ]


def render(report: Report) -> str:
    """Return the table of rules and conditions."""
    budget = report.budget
    rows = []
    for condition in CONDITIONS:
        for rate in RATES[1:] if budget.quick else RATES:
            found = {
                rule: report.of(case(condition, rule, rate, seed, budget) for seed in report.seeds) for rule in RULES
            }
            steady = found["z-step"]
            weights = (
                f"{min(one.weight_min for one in steady):.2g} to {max(one.weight_max for one in steady):.2g}"
                if steady
                else "-"
            )
            rows.append([condition, f"{rate:g}", weights, *(accuracy(found[rule]) for rule in RULES)])
    caption = report.caption(f"Accuracy in % by update rule, {PEERS} peers; w is what peers held when they trained.")
    return f"{caption}\n\n{table(['condition', 'rate', 'w', *RULES], rows)}"


SECTION = Section("updates", runs, render)
