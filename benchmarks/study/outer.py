"""Outer momentum over exchanges that do not make all agree: what it needs."""

from __future__ import annotations

from benchmarks.study.plan import FAST, RATES, Algorithm, Budget
from benchmarks.study.run import Run
from benchmarks.study.section import Report
from benchmarks.study.tables import accuracy, statistic, table

__all__ = ["render", "runs"]

PEERS = 16
_CASES = (
    Algorithm("no outer step", "local:h=8", "one-peer-exponential", waits=True),
    Algorithm("slowmo, beta = 0.7", "slowmo:h=8,beta=0.7", "one-peer-exponential", waits=True),
    Algorithm("slowmo, beta = 0.3", "slowmo:h=8,beta=0.3", "one-peer-exponential", waits=True),
    Algorithm("slowmo, beta = 0.7, with all others", "slowmo:h=8,beta=0.7", "complete", waits=True),
    Algorithm("noloco, mu = 0.5, eta = 0.7", "noloco:h=8", "random-matching", waits=True),
)


def _case(one: Algorithm, seed: int, budget: Budget) -> Run:
    return one.run(PEERS, RATES[0], seed, budget.samples, FAST)


def runs(seed: int, budget: Budget) -> list[Run]:
    """Return the runs of one seed."""
    return [_case(one, seed, budget) for one in _CASES]


def render(report: Report) -> str:
    """Return the table."""
    rows = []
    for one in _CASES:
        found = report.of(_case(one, seed, report.budget) for seed in report.seeds)
        rows.append([one.name, one.topology, accuracy(found), statistic(found, lambda it: it.disagreement, 3)])
    caption = report.caption(f"An exchange every 8 steps, {PEERS} peers, learning rate {RATES[0]:g}.")
    return f"{caption}\n\n{table(['outer step', 'topology', 'accuracy %', 'disagreement'], rows)}"
