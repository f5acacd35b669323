"""The analysis against dense computations of the test's own."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from topology_cases import NAMES, exists, matrix, product

import topologies
from topologies import Analysis, Schedule, TopologyError
from topologies.analysis import disagreement, mixing_matrix


def one_way() -> Schedule:
    """Return a schedule of two steps with a link that goes one way, so that 2 gets more than it gives."""
    one = nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)])
    other = nx.DiGraph([(2, 1), (1, 0), (0, 2)])
    return topologies.from_graphs([one, other])


def dense_disagreement(schedule: Schedule, steps: int) -> float:
    """Return how much of the worst starting difference survives, by singular values.

    For column stochastic steps everybody divides by its weight, which is what the same steps make of ones.
    """
    mixed = product(schedule, steps)
    weights = mixed.sum(axis=1)
    average = np.ones((schedule.n, schedule.n)) / schedule.n
    return float(np.linalg.svd(mixed / weights[:, None] - average, compute_uv=False)[0])


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("equidyn", 17),  # doubly stochastic, no period
        ("base:k=2", 23),  # doubly stochastic, with a period
        ("hierarchical:between=ring", 20),
        ("epidemic", 16),  # not doubly stochastic
        ("epidemic:s=3", 24),
    ],
)
def test_the_disagreement_is_that_of_the_dense_product(text: str, n: int) -> None:
    schedule = topologies.parse(text, n, seed=3)
    found = disagreement(schedule, 25)
    assert len(found) == 26
    for steps in (0, 1, 2, 7, 25):
        assert found[steps] == pytest.approx(dense_disagreement(schedule, steps), rel=1e-6, abs=1e-13)


def test_the_disagreement_of_a_periodic_schedule_that_needs_weights() -> None:
    found = disagreement(one_way(), 12)
    for steps in range(13):
        assert found[steps] == pytest.approx(dense_disagreement(one_way(), steps), rel=1e-6, abs=1e-13)


def test_before_the_first_step_everybody_disagrees_fully() -> None:
    assert disagreement(topologies.get("ring", 9), 0) == pytest.approx([1.0])


@pytest.mark.parametrize("name", NAMES)
def test_the_mixing_matrix_is_that_of_the_graph(name: str) -> None:
    schedule = topologies.get(name, 16, seed=2)
    for step in (0, 1, 9):
        assert np.abs(mixing_matrix(schedule, step) - matrix(schedule, step)).max() < 1e-15


@pytest.mark.parametrize("n", [12, 16, 33])
@pytest.mark.parametrize("name", NAMES)
def test_the_structure_is_that_of_the_matrices(name: str, n: int) -> None:
    if not exists(name, n):
        return
    schedule = topologies.get(name, n, seed=1)
    found = topologies.analyse(schedule)
    window = schedule.period or 32
    steps = [matrix(schedule, step) for step in range(window)]
    sent = [(step * (1 - np.eye(n)) > 0).sum(axis=0) for step in steps]
    assert (found.name, found.n, found.period, found.estimated) == (name, n, schedule.period, False)
    assert found.degree == max(int(counts.max()) for counts in sent)
    assert found.traffic == pytest.approx(sum(int(counts.sum()) for counts in sent) / window / n)
    assert found.symmetric == all(np.allclose(step, step.T) for step in steps)
    assert found.doubly_stochastic == all(np.allclose(step.sum(axis=1), 1) for step in steps)
    assert found.doubly_stochastic == (name != "epidemic")
    assert found.connected


@pytest.mark.parametrize(
    ("text", "n", "rate"),
    [
        ("ring", 20, math.cos(math.pi / 20)),
        ("bidirectional-ring", 20, (1 + 2 * math.cos(2 * math.pi / 20)) / 3),
        ("torus", 30, (3 + 2 * math.cos(2 * math.pi / 6)) / 5),
        ("star", 20, 1 - 1 / 20),
        ("hypercube", 16, 1 - 2 / 5),
    ],
)
def test_the_rate_is_the_second_eigenvalue_in_closed_form(text: str, n: int, rate: float) -> None:
    assert topologies.analyse(topologies.parse(text, n)).rate == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize(("text", "n"), [("one-peer-exponential", 33), ("exponential", 20), ("equistatic", 21)])
def test_the_rate_is_the_root_of_the_second_eigenvalue_of_a_period(text: str, n: int) -> None:
    schedule = topologies.parse(text, n)
    assert schedule.period is not None
    sizes = sorted(abs(value) for value in np.linalg.eigvals(product(schedule, schedule.period)))
    assert sizes[-1] == pytest.approx(1)
    assert topologies.analyse(schedule).rate == pytest.approx(sizes[-2] ** (1 / schedule.period), rel=1e-6)


def test_the_rate_without_a_period_is_the_slope_in_the_long_run() -> None:
    schedule = topologies.get("equidyn", 24, seed=5)
    found = topologies.analyse(schedule)
    early, late = (dense_disagreement(schedule, steps) for steps in (20, 40))
    assert found.rate == pytest.approx((late / early) ** (1 / 20), rel=0.1)


def test_the_steps_are_the_first_below() -> None:
    schedule = topologies.get("exponential", 24)
    found = topologies.analyse(schedule)
    for steps, tolerance in ((found.steps_to_1e3, 1e-3), (found.steps_to_1e9, 1e-9)):
        assert steps is not None
        assert dense_disagreement(schedule, steps) < tolerance <= dense_disagreement(schedule, steps - 1)


def test_a_graph_in_pieces_is_not_connected_and_never_agrees() -> None:
    pieces = nx.Graph([(0, 1), (2, 3)])
    found = topologies.analyse(topologies.from_graphs(pieces))
    assert not found.connected
    assert found.steps_to_1e3 is None
    assert found.exact_after is None
    assert found.rate == pytest.approx(1)


def test_two_graphs_in_pieces_may_be_connected_together() -> None:
    steps = [nx.Graph([(0, 1), (2, 3)]), nx.Graph([(0, 2), (1, 3)])]
    found = topologies.analyse(topologies.from_graphs(steps))
    assert found.connected
    assert found.exact_after == 2


def test_a_graph_without_a_way_back_is_not_connected() -> None:
    found = topologies.analyse(topologies.from_graphs(nx.DiGraph([(0, 1), (1, 2)])))
    assert not found.connected
    assert not found.doubly_stochastic
    assert not found.symmetric


@pytest.mark.parametrize("name", ["exponential", "one-peer-exponential", "equidyn", "epidemic"])
def test_an_estimate_is_close_to_the_dense_computation(name: str) -> None:
    """Beyond 256 peers four random vectors are followed: their mean disagreement is below the worst one."""
    schedule = topologies.get(name, 300)
    found = topologies.analyse(schedule)
    assert found.estimated
    assert found.steps_to_1e9 is not None
    at_most = found.steps_to_1e9 * 115 // 100 + 2
    assert dense_disagreement(schedule, found.steps_to_1e9 - 1) >= 1e-9 > dense_disagreement(schedule, at_most)
    estimate = disagreement(schedule, 10)[10]
    worst = dense_disagreement(schedule, 10)
    assert worst / 20 < estimate < worst * 1.001


def test_an_estimate_sees_exactness() -> None:
    found = topologies.analyse(topologies.get("base", 300, k=2))
    assert found.estimated
    assert found.exact_after == topologies.get("base", 300, k=2).period


def test_one_peer_agrees_with_itself() -> None:
    found = topologies.analyse(topologies.get("base", 1))
    expected = Analysis("base", 1, 1, True, True, True, 0, 0.0, 0.0, 0, 0, 0, 50_000, False)
    assert found == expected


def test_a_graph_with_too_many_edges_is_refused() -> None:
    with pytest.raises(
        TopologyError, match=r"complete of 3000 peers has about 8997000 edges in a step, and at most 5000000"
    ):
        topologies.analyse(topologies.get("complete", 3000))
