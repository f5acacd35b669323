"""Outer momentum over exchanges that do not make all agree: what it needs."""

from __future__ import annotations

from benchmarks.study.plan import FAST, RATES, Algorithm, Budget
from benchmarks.study.run import Run
from benchmarks.study.section import Report
from benchmarks.study.tables import accuracy, statistic, table

__all__ = ["render", "runs"]

PEERS = 16
#: With the learning rate. An outer momentum of 0.7 makes 3.3 times as much of it, which the smaller one makes up for.
_CASES = (
    (Algorithm("no outer step", "local:h=8", "one-peer-exponential", waits=True), RATES[0]),
    (Algorithm("slowmo, beta = 0.7", "slowmo:h=8,beta=0.7", "one-peer-exponential", waits=True), RATES[0]),
    (Algorithm("slowmo, beta = 0.7", "slowmo:h=8,beta=0.7", "one-peer-exponential", waits=True), 0.3 * RATES[0]),
    (Algorithm("slowmo, beta = 0.3", "slowmo:h=8,beta=0.3", "one-peer-exponential", waits=True), RATES[0]),
    (Algorithm("slowmo, beta = 0.7, with all others", "slowmo:h=8,beta=0.7", "complete", waits=True), RATES[0]),
    (Algorithm("noloco, mu = 0.5, eta = 0.7", "noloco:h=8", "random-matching", waits=True), RATES[0]),
)


def runs(seed: int, budget: Budget) -> list[Run]:
    """Return the runs of one seed."""
    return [one.run(PEERS, rate, seed, budget.samples, FAST) for one, rate in _CASES]


def render(report: Report) -> str:
    """Return the table."""
    each = zip(*(runs(seed, report.budget) for seed in report.seeds), strict=True)
    rows = []
    for (one, rate), seeds in zip(_CASES, each, strict=True):
        found = report.of(seeds)
        apart = statistic(found, lambda it: it.disagreement, 3)
        rows.append([one.name, one.topology, f"{rate:g}", accuracy(found), apart])
    caption = report.caption(f"An exchange every 8 steps, {PEERS} peers.")
    return f"{caption}\n\n{table(['outer step', 'topology', 'rate', 'accuracy %', 'disagreement'], rows)}"
