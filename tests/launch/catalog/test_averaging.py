"""Averaging along a schedule, against the dense product of mixing matrices."""

from __future__ import annotations

from itertools import islice

import networkx as nx
import numpy as np
import pytest

import topologies
from launch.catalog.mixing import push_sum, spread
from topologies import Schedule
from topologies.analysis import mixing_matrix


def dense(schedule: Schedule, values: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mass and weight after a number of steps, computed the slow and obvious way."""
    product = np.eye(schedule.n)
    for step in range(steps):
        product = mixing_matrix(schedule, step) @ product
    return product @ values, product @ np.ones(schedule.n)


def irregular() -> Schedule:
    """Return a directed graph on which some hear from many and some from few."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 0, 0.5), (0, 1, 0.5), (1, 1, 0.2), (1, 2, 0.4), (1, 0, 0.4)])
    graph.add_weighted_edges_from([(2, 2, 0.5), (2, 0, 0.25), (2, 3, 0.25), (3, 3, 0.5), (3, 0, 0.5)])
    return topologies.from_graphs(graph)


@pytest.mark.parametrize(
    "schedule", [irregular(), *(topologies.get(name, 33) for name in ("ring", "base", "epidemic"))]
)
def test_push_sum_is_the_product_of_the_matrices(schedule: Schedule) -> None:
    values = np.random.default_rng(1).random((schedule.n, 2))
    for step, (mass, weight) in enumerate(islice(push_sum(schedule, values), 14)):
        expected_mass, expected_weight = dense(schedule, values, step)
        assert mass == pytest.approx(expected_mass, abs=1e-12)
        assert weight == pytest.approx(expected_weight, abs=1e-12)


def test_spread_starts_at_one_and_is_infinite_without_weight() -> None:
    values = np.array([0.0, 1.0, 5.0])
    assert spread(topologies.get("complete", 3), values, 1) == pytest.approx([1.0, 0.0])
    assert spread(topologies.get("complete", 3), np.ones(3), 1) == [0.0, 0.0]
    graph = topologies.from_graphs(empties_peer_0())
    assert spread(graph, np.array([0.0, 1.0]), 1) == [1.0, float("inf")]


def empties_peer_0() -> nx.DiGraph[int]:
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 1, 1.0), (1, 1, 1.0)])
    return graph
