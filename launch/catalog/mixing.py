"""Averaging numbers along a schedule's edges, as the peers would, all in one process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt

from topologies import Schedule

__all__ = ["push_sum", "spread"]

Array = npt.NDArray[np.float64]


def push_sum(schedule: Schedule, values: Array) -> Iterator[tuple[Array, Array]]:
    """Yield every peer's mass and weight after 0, 1, 2, ... steps; mass / weight is its idea of the average.

    ``values`` has a row for each peer. Mass and weight travel over the same edges in the same fractions, so
    neither is ever made or lost, and their ratio tends to the average wherever the graph is connected.
    """
    edges_at = lru_cache(maxsize=64)(lambda step: _edges(schedule, step))
    mass, weight = values.astype(np.float64), np.ones(schedule.n)
    step = 0
    while True:
        yield mass, weight
        tail, head, fraction = edges_at(step % schedule.period if schedule.period else step)
        moved, moved_weight = np.zeros_like(mass), np.zeros_like(weight)
        np.add.at(moved, head, (mass[tail].T * fraction).T)
        np.add.at(moved_weight, head, weight[tail] * fraction)
        mass, weight = moved, moved_weight
        step += 1


def spread(schedule: Schedule, values: Array, steps: int) -> list[float]:
    """Return what is left of the differences to the average after 0, 1, ..., ``steps`` steps; it starts at 1.

    Infinite where a peer has given all of its weight away and so has no idea of the average.
    """
    average = values.mean(axis=0)
    start = float(np.linalg.norm(values - average)) or 1.0
    left = []
    for mass, weight in islice(push_sum(schedule, values), steps + 1):
        if weight.min() > 0:
            left.append(float(np.linalg.norm((mass.T / weight).T - average)) / start)
        else:
            left.append(float("inf"))
    return left


def _edges(schedule: Schedule, step: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Array]:
    """Return tails, heads and fractions of a step, what each peer keeps included."""
    sent = [(u, v, fraction) for u in range(schedule.n) for v, fraction in schedule.out_edges(u, step)]
    kept = [(u, u, schedule.kept(u, step)) for u in range(schedule.n)]
    tails, heads, fractions = zip(*sent, *kept, strict=True)
    return np.array(tails), np.array(heads), np.array(fractions)
