"""Accuracy and disagreement by topology, next to the theory's rate."""

from __future__ import annotations

import numpy as np

from benchmarks.study.figures import figure
from benchmarks.study.plan import RATES, Budget
from benchmarks.study.run import Run
from benchmarks.study.section import Report, Section
from benchmarks.study.tables import accuracy, mean, number, spread, table
from topologies import parse
from topologies.analysis import analyse, mixing_matrix

__all__ = ["SIZES", "TOPOLOGIES", "UNEQUAL", "case", "runs"]

TOPOLOGIES = (
    "ring",
    "bidirectional-ring",
    "torus",
    "exponential",
    "epidemic",
    "random-matching",
    "equidyn",
    "one-peer-exponential",
    "base",
)
SIZES = (8, 16, 33)
_MOMENTUM = 0.9
#: The number of peers that also train with unequal data, and how unequal.
UNEQUAL = (16, 0.1)


def case(topology: str, peers: int, dirichlet: float, seed: int, budget: Budget) -> Run:
    """Return one run: sgp, with the schedule's fractions followed to the letter."""
    base = Run("sgp", topology, peers, RATES[0], seed, budget.samples)
    return base.but(dirichlet=dirichlet, weight_floor=0.0, weight_cap=1e6)


def runs(budget: Budget) -> list[Run]:
    """Return all runs."""
    where = [(UNEQUAL[0], 0.0)] if budget.quick else [*((n, 0.0) for n in SIZES), UNEQUAL]
    return [
        case(topology, peers, dirichlet, seed, budget)
        for seed in range(budget.seeds)
        for peers, dirichlet in where
        for topology in TOPOLOGIES
    ]


def forecast(topology: str, peers: int, steps: int) -> float:
    """Return the disagreement that theory predicts after ``steps`` steps, in units of the gradients' noise.

    The peers' gradients differ by independent noise e. SGD with Nesterov's momentum b adds c_k e to the values, k steps
    later: c_0 = 1 + b, then c_k = b^(k+1). The exchanges W in between mix the values: R_k = W R_(k-1) + c_k 1. The
    squares of the noise of all steps add up, and the part that all peers have in common is not disagreement.
    """
    schedule = parse(topology, peers, seed=0)
    centred = np.eye(peers) - 1 / peers
    response, mass, total = np.zeros((peers, peers)), np.ones(peers), 0.0
    for step in range(steps):
        matrix = mixing_matrix(schedule, step)
        length = _MOMENTUM ** (step + 1) if step else 1 + _MOMENTUM
        response = response + length * np.diag(mass)
        total += float(((centred @ (response / mass[:, None])) ** 2).sum()) / peers
        response, mass = matrix @ response, matrix @ mass
    return float(np.sqrt(total))


def render(report: Report) -> str:
    """Return a table for each number of peers, and the figure of forecast and measurement."""
    budget = report.budget
    parts, clouds = [], []
    for peers in (UNEQUAL[0],) if budget.quick else SIZES:
        steps = budget.samples // 16 // peers
        found = {one: report.of(case(one, peers, 0.0, seed, budget) for seed in report.seeds) for one in TOPOLOGIES}
        usual = mean(found["one-peer-exponential"], lambda one: one.disagreement)
        unit = forecast("one-peer-exponential", peers, steps)
        cloud, rows = [], []
        for topology in TOPOLOGIES:
            theory = analyse(parse(topology, peers, seed=0), 20_000)
            expected = forecast(topology, peers, steps) / unit
            measured = mean(found[topology], lambda one: one.disagreement) / usual
            noise = spread([one.disagreement for one in found[topology]]) / usual
            cloud.append((expected, measured, noise))
            exact = f"exact in {theory.exact_after}" if theory.exact_after else f"{theory.rate:.3f}"
            row = [topology, f"{theory.traffic:.2g}", exact, number(expected), number(measured)]
            row.append(accuracy(found[topology]))
            if peers == UNEQUAL[0] and not budget.quick:
                row.append(accuracy(report.of(case(topology, *UNEQUAL, seed, budget) for seed in report.seeds)))
            rows.append(row)
        clouds.append((f"{peers} peers", cloud))
        head = ["topology", "models sent", "rate per step", "disagreement: forecast", "measured", "accuracy %"]
        if peers == UNEQUAL[0] and not budget.quick:
            head.append("accuracy %, Dirichlet 0.1")
        caption = report.caption(
            f"**{peers} peers**, sgp, {steps} steps each. Disagreement relative to one-peer-exponential's, "
            f"which is {number(usual, 4)} of the size of the values."
        )
        parts.append(f"{caption}\n\n{table(head, rows)}")
    if report.figures is not None:
        with figure(report.figures / "topologies.svg") as axes:
            for label, cloud in clouds:
                xs, ys, bars = zip(*cloud, strict=True)
                axes.errorbar(xs, ys, bars, fmt="o", markersize=3.5, elinewidth=0.7, label=label)
            axes.axline((1, 1), slope=1, linewidth=0.8, color="grey")
            axes.set(xscale="log", yscale="log", xlabel="forecast", ylabel="measured", title="disagreement")
            axes.legend()
        parts.append(report.picture("topologies", "Disagreement: forecast and measured", "bars: standard deviations"))
    return "\n\n".join(parts)


SECTION = Section("topologies", runs, render)
