"""Accuracy and disagreement by topology, next to the theory's rate."""

from __future__ import annotations

import numpy as np

from benchmarks.study.figures import figure
from benchmarks.study.learner import SCHEDULES
from benchmarks.study.plan import METHODS, PEERS, Budget
from benchmarks.study.section import Cell, Report, Section
from benchmarks.study.tables import accuracy, mean, number, spread, table
from topologies import parse
from topologies.analysis import analyse, mixing_matrix

__all__ = ["SIZES", "TOPOLOGIES", "cell", "forecast"]

TOPOLOGIES = ("ring", "torus", "exponential", "epidemic", "random-matching", "one-peer-exponential", "base")
SIZES = (PEERS, 33)
DIRICHLET = 0.1
#: A rate that ends at 0 would leave no disagreement to look at.
_SCHEDULE = "cosine"
_MOMENTUM = 0.9


def cell(topology: str, peers: int, dirichlet: float, budget: Budget) -> Cell:
    """Return sgp on a graph, with the schedule's fractions followed to the letter, and sgp's best rate."""
    template = METHODS["sgp"].run(peers, budget).but(dirichlet=dirichlet)
    changes = {"topology": topology, "schedule": _SCHEDULE, "weight_floor": 0.0, "weight_cap": 1e6}
    return Cell(template.but(**changes), template)


def _sizes(budget: Budget) -> tuple[int, ...]:
    return SIZES[:1] if budget.quick else SIZES


def cells(budget: Budget) -> list[Cell]:
    """Return all cells."""
    unequal = [] if budget.quick else [(PEERS, DIRICHLET)]
    where = [*((peers, 0.0) for peers in _sizes(budget)), *unequal]
    return [cell(topology, peers, dirichlet, budget) for peers, dirichlet in where for topology in TOPOLOGIES]


def forecast(topology: str, peers: int, steps: int) -> float:
    """Return the disagreement that theory predicts after ``steps`` steps, in units of the gradients' noise.

    The peers' gradients differ by independent noise e. SGD with Nesterov's momentum b adds r c_k e to the values, k
    steps later: c_0 = 1 + b, then c_k = b^(k+1), and r is the rate then. The exchanges W in between mix the values: R
    becomes W R + r c_k 1. The squares of the noise of all steps add up, and the part that all peers have in common is
    not disagreement.
    """
    schedule = parse(topology, peers, seed=0)
    centred = np.eye(peers) - 1 / peers
    rates = [SCHEDULES[_SCHEDULE]((step + 1) / steps) for step in range(steps)]
    matrices = [mixing_matrix(schedule, step) for step in range(steps)]
    masses = [np.ones(peers)]
    for matrix in matrices:
        masses.append(matrix @ masses[-1])
    total = 0.0
    for born in range(steps):
        response = np.zeros((peers, peers))
        for step in range(born, steps):
            length = _MOMENTUM ** (step - born + 1) if step > born else 1 + _MOMENTUM
            moved = response + rates[step] * length * np.diag(masses[step])
            response = matrices[step] @ moved
        # The run ends when all have moved, before what was sent then arrives.
        total += float(((centred @ (moved / masses[steps - 1][:, None])) ** 2).sum()) / peers
    return float(np.sqrt(total))


def render(report: Report) -> str:
    """Return a table for each number of peers, and the figure of forecast and measurement."""
    budget = report.budget
    parts, clouds = [], []
    for peers in _sizes(budget):
        template = cell("ring", peers, 0.0, budget).template
        steps = template.samples // template.batch // peers
        found = {one: report.of(cell(one, peers, 0.0, budget)) for one in TOPOLOGIES}
        usual = mean(found["one-peer-exponential"], lambda one: one.disagreement)
        unit = forecast("one-peer-exponential", peers, steps)
        head = ["topology", "models sent", "rate per step", "disagreement: forecast", "measured", "accuracy %"]
        unequal = peers == PEERS and not budget.quick
        if unequal:
            head.append(f"accuracy %, Dirichlet {DIRICHLET:g}")
        cloud, rows = [], []
        for topology in TOPOLOGIES:
            theory = analyse(parse(topology, peers, seed=0), 20_000)
            expected = forecast(topology, peers, steps) / unit
            measured = mean(found[topology], lambda one: one.disagreement) / usual
            cloud.append((expected, measured, spread([one.disagreement for one in found[topology]]) / usual))
            exact = f"exact in {theory.exact_after}" if theory.exact_after else f"{theory.rate:.3f}"
            row = [topology, f"{theory.traffic:.2g}", exact, number(expected), number(measured)]
            row.append(accuracy(found[topology]))
            if unequal:
                row.append(accuracy(report.of(cell(topology, peers, DIRICHLET, budget))))
            rows.append(row)
        clouds.append((f"{peers} peers", cloud))
        caption = report.caption(
            f"**{peers} peers**, sgp with its best rate, {steps} steps each. Disagreement relative to "
            f"one-peer-exponential's, which is {number(usual, 4)} of the size of the values."
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


SECTION = Section("topologies", cells, render)
