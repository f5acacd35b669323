"""Traps that other implementations fell into, one test each."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from topology_cases import matrix

import topologies
from topologies.equi import _partner
from topologies.plans import metropolis, shifts, uniform


def test_hops_of_plus_and_minus_half_are_one_edge() -> None:
    """n = 8: the hops 4 and -4 lead to the same rank; two edges would carry mass twice."""
    assert uniform(8, [1, 2, 4, -1, -2, -4]) == [(hop, 1 / 6) for hop in (1, 2, 4, 6, 7)]
    plan = shifts(8, 1, lambda _: uniform(8, [4, -4]))
    assert plan.out(3, 0) == ((7, 0.5),)
    assert plan.into(3, 0) == (7,)


def test_a_hop_of_n_is_no_edge() -> None:
    """n = 6: a hop that comes back to its start would be a self-edge."""
    assert uniform(6, [1, 6, -6, 12, 7]) == [(1, 0.5)]
    assert uniform(6, [0, 6]) == []
    assert uniform(1, [1, -1, 2]) == []


@pytest.mark.parametrize("name", ["exponential", "bidirectional-ring", "one-peer-exponential", "kautz", "torus"])
def test_six_peers_have_no_edge_to_themselves(name: str) -> None:
    schedule = topologies.get(name, 6)
    for step in range(6):
        for rank in range(6):
            assert rank not in dict(schedule.out_edges(rank, step))
            assert rank not in schedule.in_neighbours(rank, step)


def test_the_two_directions_of_a_ring_of_two_are_one_edge() -> None:
    ring = topologies.get("bidirectional-ring", 2)
    assert ring.out_edges(0, 0) == ((1, 0.5),)
    assert ring.in_neighbours(0, 0) == (1,)
    assert ring.kept(0, 0) == 0.5


def test_a_ring_of_three_keeps_a_third() -> None:
    assert topologies.get("bidirectional-ring", 3).out_edges(1, 0) == ((0, 1 / 3), (2, 1 / 3))


@pytest.mark.parametrize(("n", "rows"), [(2, 1), (2, 2), (4, 2), (6, 2), (10, 2), (6, 3), (10, 5)])
def test_a_torus_with_a_side_of_two_has_each_neighbour_once(n: int, rows: int) -> None:
    torus = topologies.get("torus", n, rows=rows)
    grid = nx.grid_2d_graph(rows, n // rows, periodic=True)
    for rank in range(n):
        place = divmod(rank, n // rows)
        near = sorted({row * (n // rows) + column for row, column in grid[place]} - {rank})
        share = 1 / (len(near) + 1)
        assert torus.out_edges(rank, 0) == tuple((other, share) for other in near)


def test_a_torus_is_the_grid_that_networkx_makes() -> None:
    for n, rows in ((9, 3), (12, 3), (30, 5), (35, 5), (64, 8)):
        torus = topologies.get("torus", n)
        grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, n // rows, periodic=True), ordering="sorted")
        expected = (nx.to_numpy_array(grid, nodelist=range(n)) + np.eye(n)) / 5
        assert np.allclose(matrix(torus, 0), expected)


@pytest.mark.parametrize("n", [1, 3, 5, 7, 33, 101])
def test_a_random_matching_of_an_odd_number_leaves_exactly_one_idle(n: int) -> None:
    """Elsewhere an odd n in a pairing is an IndexError."""
    schedule = topologies.get("random-matching", n, seed=4)
    idle = []
    for step in range(60):
        alone = [rank for rank in range(n) if not schedule.out_edges(rank, step)]
        assert len(alone) == 1
        assert schedule.kept(alone[0], step) == 1
        idle += alone
    assert n == 1 or len(set(idle)) > 2, "it is always the same that idles"


@pytest.mark.parametrize("n", [2, 4, 6, 34, 100])
def test_a_random_matching_of_an_even_number_leaves_nobody_idle(n: int) -> None:
    schedule = topologies.get("random-matching", n, seed=4)
    for step in range(20):
        fractions = [[fraction for _, fraction in schedule.out_edges(rank, step)] for rank in range(n)]
        assert fractions == [[0.5]] * n  # one partner each, and a pair averages


@pytest.mark.parametrize("n", [3, 5, 9, 33])
def test_an_undirected_equidyn_pairs_both_ways_at_odd_sizes(n: int) -> None:
    schedule = topologies.get("equidyn-undirected", n, seed=2)
    for step in range(40):
        dense = matrix(schedule, step)
        assert (dense == dense.T).all()
        links = int((dense * (1 - np.eye(n)) > 0).sum()) // 2
        assert 1 <= links <= n // 2


def scanned(n: int, hop: int, start: int) -> dict[int, int]:
    """Return the pairs of the paper's scan: i = s, s + 1, ... takes i + p if both are free."""
    pairs: dict[int, int] = {}
    for i in ((start + j) % n for j in range(n)):
        other = (i + hop) % n
        if i not in pairs and other not in pairs:
            pairs[i], pairs[other] = other, i
    return pairs


@pytest.mark.parametrize("sizes", [range(2, 27), range(27, 35), range(35, 41)], ids=str)
def test_the_closed_form_of_equidyn_is_the_scan(sizes: range) -> None:
    for n in sizes:
        for hop in range(1, n):
            for start in range(n):
                found = {}
                for rank in range(n):
                    partner = _partner(n, hop, (rank - start) % n)
                    if partner is not None:
                        found[rank] = (start + partner) % n
                assert found == scanned(n, hop, start), f"n = {n}, hop {hop}, start {start}"


def test_equidyn_undirected_runs_such_a_scan_in_every_step() -> None:
    for n in (2, 7, 20):
        schedule = topologies.get("equidyn-undirected", n, eta=0.5, seed=6)
        scans = [scanned(n, hop, start) for hop in range(1, n) for start in range(n)]
        for step in range(20):
            pairs = {rank: edges[0][0] for rank in range(n) if (edges := schedule.out_edges(rank, step))}
            assert pairs in scans
            assert all(
                fraction == 0.5 * (n - 1) / n for rank in range(n) for _, fraction in schedule.out_edges(rank, step)
            )


def test_equidyn_moves_everybody_by_the_same_hop() -> None:
    schedule = topologies.get("equidyn", 12, eta=0.25, seed=3)
    drawn = set()
    for step in range(200):
        hops = {(edges[0][0] - rank) % 12 for rank in range(12) if (edges := schedule.out_edges(rank, step))}
        assert len(hops) == 1
        drawn |= hops
        assert schedule.out_edges(0, step)[0][1] == 0.25 * 11 / 12
    assert drawn == set(range(1, 12))


@pytest.mark.parametrize("n", [4, 6, 12, 30, 60])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_hops_of_equistatic_never_share_a_divisor_with_n(n: int, m: int) -> None:
    """With hops 2 and 4 of 6 the even and the odd ranks would never meet."""
    for seed in range(12):
        schedule = topologies.get("equistatic", n, m=m, seed=seed)
        assert len(schedule.out_edges(0, 0)) == m
        assert nx.is_strongly_connected(schedule.graph_at(0))


def test_metropolis_fractions_of_an_irregular_graph_are_symmetric() -> None:
    path_with_hub = [{1}, {0, 2, 3, 4}, {1}, {1}, {1, 5}, {4}]
    edges = {(u, v): share for u, row in enumerate(metropolis(path_with_hub)) for v, share in row}
    assert edges[0, 1] == edges[1, 0] == 1 / 5
    assert edges[4, 5] == edges[5, 4] == 1 / 3


def test_random_regular_graphs_have_the_degree_asked_for() -> None:
    for n, d in ((10, 3), (11, 4), (20, 7), (4, 9), (50, 4)):
        for seed in range(5):
            graph = nx.Graph(topologies.get("random-regular", n, d=d, seed=seed).graph_at(0))
            graph.remove_edges_from(nx.selfloop_edges(graph))
            assert set(dict(graph.degree()).values()) == {min(d, n - 1)}
            assert nx.is_connected(graph)
