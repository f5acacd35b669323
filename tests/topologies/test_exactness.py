"""Which schedules average exactly in finite time, and which only seem to: by dense products, not by belief."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from topology_cases import apply, exact_average, matrix, period_product, product

import topologies

POWERS_OF_TWO = [1, 2, 4, 8, 16, 32, 64, 128, 256]
POWERS_OF_THREE = [1, 3, 9, 27, 81, 243]


@pytest.mark.parametrize("block", range(12))
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_base_is_exact_for_every_size(k: int, block: int) -> None:
    for n in range(1 + block, 301, 12):  # a stride, so that the blocks cost the same
        schedule = topologies.get("base", n, k=k)
        assert schedule.period is not None
        assert schedule.period <= 2 * math.log(n, k + 1) + 2 + 1e-9
        mixed = np.eye(n)
        for step in range(schedule.period):
            dense = matrix(schedule, step)
            assert (np.count_nonzero(dense * (1 - np.eye(n)), axis=0) <= k).all()
            mixed = apply(dense, mixed)
        assert exact_average(mixed), f"n = {n}, k = {k}"


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_base_is_symmetric_in_every_step(k: int) -> None:
    for n in (5, 33, 47, 60):
        schedule = topologies.get("base", n, k=k)
        for step in range(schedule.period or 0):
            dense = matrix(schedule, step)
            assert (dense == dense.T).all()


@pytest.mark.parametrize("name", ["one-peer-exponential", "one-peer-hypercube", "de-bruijn", "kautz"])
def test_powers_of_two_are_exact_in_log2_steps(name: str) -> None:
    for n in POWERS_OF_TWO:
        schedule = topologies.get(name, n)
        steps = n.bit_length() - 1
        assert exact_average(product(schedule, steps)), f"n = {n}"
        if steps:
            assert not exact_average(product(schedule, steps - 1)), f"n = {n}"


@pytest.mark.parametrize("name", ["de-bruijn", "kautz"])
def test_powers_of_three_are_exact_in_log3_steps_with_three_ways_out(name: str) -> None:
    for steps, n in enumerate(POWERS_OF_THREE):
        schedule = topologies.get(name, n, d=3)
        assert exact_average(product(schedule, steps)), f"n = {n}"
        if steps:
            assert not exact_average(product(schedule, steps - 1)), f"n = {n}"


@pytest.mark.parametrize("name", ["one-peer-exponential", "de-bruijn", "kautz"])
@pytest.mark.parametrize("n", [3, 5, 6, 12, 24, 33, 48, 63, 65, 96, 100])
def test_no_other_size_is_exact(name: str, n: int) -> None:
    """The trap in other code: exactness claimed for all n."""
    schedule = topologies.get(name, n)
    assert topologies.analyse(schedule).exact_after is None
    assert not exact_average(product(schedule, 3 * n.bit_length()))


@pytest.mark.parametrize("name", ["one-peer-exponential", "one-peer-hypercube", "de-bruijn", "kautz"])
@pytest.mark.parametrize("n", [2, 8, 64])
def test_the_analysis_says_after_how_many_steps(name: str, n: int) -> None:
    assert topologies.analyse(topologies.get(name, n)).exact_after == n.bit_length() - 1


@pytest.mark.parametrize(("k", "n"), [(1, 33), (1, 100), (2, 50), (4, 7), (4, 33)])
def test_the_analysis_of_base_agrees_with_the_product(k: int, n: int) -> None:
    schedule = topologies.get("base", n, k=k)
    found = topologies.analyse(schedule)
    assert found.exact_after is not None
    assert found.exact_after <= (schedule.period or 0)
    assert exact_average(product(schedule, found.exact_after))
    assert not exact_average(product(schedule, found.exact_after - 1))
    assert found.rate == 0


@pytest.mark.parametrize("n", [4, 8, 32])
def test_a_self_loop_destroys_the_exactness_of_de_bruijn(n: int) -> None:
    graph = topologies.get("de-bruijn", n).graph_at(0)
    lazy = nx.DiGraph()
    lazy.add_nodes_from(range(n))
    for u, v, weight in graph.edges(data="weight"):
        lazy.add_edge(u, v, weight=weight * 2 / 3 + (u == v) / 3)
    for u in range(n):
        if not lazy.has_edge(u, u):
            lazy.add_edge(u, u, weight=1 / 3)
    steps = n.bit_length() - 1
    as_it_is, with_loops = topologies.from_graphs(graph), topologies.from_graphs(lazy)
    assert topologies.analyse(as_it_is).exact_after == steps
    assert exact_average(product(as_it_is, steps))
    assert topologies.analyse(with_loops).exact_after is None
    assert not exact_average(product(with_loops, 3 * steps))


@pytest.mark.parametrize(
    ("n", "groups", "between"),
    [
        (16, "4", "base"),
        (12, "3", "base"),
        (20, "5+5+5+5", "base"),
        (35, "7", "base:k=2"),
        (33, "3", "[base:k=4]"),
        (24, "1", "base"),
        (7, "7", "base"),
        (32, "8", "one-peer-exponential"),
        (32, "8", "one-peer-hypercube"),
    ],
)
def test_a_hierarchy_of_equal_groups_is_exact_over_a_period(n: int, groups: str, between: str) -> None:
    assert exact_average(period_product(f"hierarchical:groups={groups},between={between}", n))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 50])
def test_complete_is_exact_in_one_step(n: int) -> None:
    assert exact_average(period_product("complete", n))


@pytest.mark.parametrize("name", ["ring", "bidirectional-ring", "exponential", "hypercube", "star", "torus"])
def test_what_mixes_geometrically_is_not_called_exact(name: str) -> None:
    found = topologies.analyse(topologies.get(name, 64))
    assert found.exact_after is None
    assert 0 < found.rate < 1
