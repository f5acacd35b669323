"""Graphs of the user's own: what they become, and what is wrong with those that are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from topology_cases import NAMES, matrix

import topologies
from topologies import BadGraph


def weighted(*edges: tuple[int, int, Any]) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(edges)
    return graph


@pytest.mark.parametrize("name", NAMES)
def test_the_graphs_of_a_schedule_make_the_same_schedule(name: str) -> None:
    original = topologies.get(name, 16, seed=1)
    steps = original.period or 5
    copy = topologies.from_graphs([original.graph_at(step) for step in range(steps)], name="copy")
    assert (copy.name, copy.n, copy.period) == ("copy", 16, steps)
    for step in range(steps):
        for rank in range(16):
            assert copy.out_edges(rank, step) == original.out_edges(rank, step)
            assert copy.in_neighbours(rank, step + steps) == original.in_neighbours(rank, step)
            assert copy.kept(rank, step) == original.kept(rank, step)


def test_weights_are_the_fractions() -> None:
    schedule = topologies.from_graphs(weighted((0, 1, 0.25), (0, 0, 0.75), (1, 0, 1), (2, 2, 1), (1, 2, 0)))
    assert schedule.out_edges(0, 0) == ((1, 0.25),)
    assert schedule.kept(0, 0) == 0.75
    assert schedule.out_edges(1, 0) == ((0, 1.0),)  # a weight of 0 is no edge
    assert schedule.kept(1, 0) == 0
    assert schedule.in_neighbours(2, 0) == ()
    assert (schedule.name, schedule.period) == ("custom", 1)


def test_an_undirected_graph_without_weights_gets_metropolis_fractions() -> None:
    graph = nx.Graph([(0, 1), (1, 2), (1, 3), (3, 4)])
    dense = matrix(topologies.from_graphs(graph), 0)
    for u, v in graph.edges():
        assert dense[u, v] == dense[v, u] == 1 / (1 + max(graph.degree(u), graph.degree(v)))
    assert np.count_nonzero(dense - np.diag(np.diag(dense))) == 2 * graph.number_of_edges()
    assert np.allclose(dense.sum(axis=0), 1)
    assert np.allclose(dense.sum(axis=1), 1)


def test_a_directed_graph_without_weights_shares_evenly() -> None:
    schedule = topologies.from_graphs(nx.DiGraph([(0, 1), (0, 2), (1, 2), (2, 2)]))
    assert schedule.out_edges(0, 0) == ((1, 1 / 3), (2, 1 / 3))
    assert schedule.out_edges(1, 0) == ((2, 1 / 2),)
    assert schedule.out_edges(2, 0) == ()  # its self-loop is what it keeps anyway


def test_an_undirected_weighted_graph_goes_both_ways() -> None:
    graph = nx.Graph()
    graph.add_weighted_edges_from([(0, 1, 0.3), (0, 0, 0.7), (1, 1, 0.7)])
    schedule = topologies.from_graphs(graph)
    assert schedule.out_edges(0, 0) == ((1, 0.3),)
    assert schedule.out_edges(1, 0) == ((0, 0.3),)


def test_a_multigraph_without_parallel_edges_is_a_graph() -> None:
    directed = nx.MultiDiGraph([(0, 1), (1, 0), (1, 1)])
    assert topologies.from_graphs(directed).out_edges(0, 0) == ((1, 0.5),)
    assert topologies.from_graphs(nx.MultiGraph([(0, 1), (1, 2)])).out_edges(0, 0) == ((1, 1 / 3),)


def test_a_lone_node_is_a_swarm_of_one() -> None:
    graph = nx.Graph()
    graph.add_node(0)
    schedule = topologies.from_graphs(graph)
    assert (schedule.n, schedule.out_edges(0, 0), schedule.kept(0, 0)) == (1, (), 1.0)


def test_any_iterable_of_graphs_will_do_and_the_graphs_may_change_later() -> None:
    first, second = nx.Graph([(0, 1)]), nx.DiGraph([(0, 1)])
    schedule = topologies.from_graphs(graph for graph in (first, second))
    first.remove_edge(0, 1)
    assert schedule.period == 2
    assert schedule.in_neighbours(0, 0) == (1,)
    assert schedule.in_neighbours(0, 1) == ()


def parallel(kind: Callable[[], nx.MultiGraph]) -> nx.MultiGraph:
    graph = kind()
    graph.add_edges_from([(0, 1), (0, 1)])
    return graph


GOOD = weighted((0, 1, 0.5), (0, 0, 0.5), (1, 1, 1))

BAD: dict[str, tuple[Any, str]] = {
    "negative": (weighted((0, 1, -0.5), (0, 0, 1.5), (1, 1, 1)), r"mine, edge 0 -> 1: .*cannot be -0\.5"),
    "nan": (weighted((0, 1, math.nan), (1, 1, 1)), r"mine, edge 0 -> 1: .*finite number, not nan"),
    "infinite": (weighted((0, 1, math.inf), (1, 1, 1)), r"mine, edge 0 -> 1: .*finite number, not inf"),
    "text": (weighted((0, 1, "half"), (1, 1, 1)), r"mine, edge 0 -> 1: .*finite number, not 'half'"),
    "none": (weighted((0, 1, None), (1, 1, 1)), r"mine, edge 0 -> 1: .*finite number, not None"),
    "a bool": (weighted((0, 1, True), (1, 1, 1)), r"mine, edge 0 -> 1: .*finite number, not True"),
    "too little": (
        weighted((0, 1, 0.5), (0, 0, 0.25), (1, 1, 1)),
        r"mine, node 0: the outgoing fractions sum to 0\.75, not 1$",
    ),
    "too much": (weighted((0, 0, 1), (1, 1, 1), (1, 0, 0.1)), r"mine, node 1: .* sum to 1\.1, not 1$"),
    "no self-loop": (
        weighted((0, 1, 0.5), (1, 1, 1)),
        r"mine, node 0: .* sum to 0\.5, not 1; add a self-loop 0 -> 0 for the fraction that it keeps",
    ),
    "nothing out": (weighted((0, 1, 1)), r"mine, node 1: .* sum to 0, not 1; add a self-loop 1 -> 1"),
    "some weights": (
        nx.DiGraph([(0, 1, {"weight": 1}), (1, 0)]),
        r"mine, edge 1 -> 0: the edge has no weight, but other edges do",
    ),
    "a gap": (nx.DiGraph([(0, 1), (1, 3)]), r"mine: the 3 nodes must be the ranks 0 to 2, but one is 3"),
    "from 1": (nx.DiGraph([(1, 2), (2, 1)]), r"mine: the 2 nodes must be the ranks 0 to 1, but one is 2"),
    "below 0": (nx.DiGraph([(0, -1)]), r"mine: the 2 nodes must be the ranks 0 to 1, but one is -1"),
    "words": (nx.DiGraph([("a", "b")]), r"mine: the 2 nodes must be the ranks 0 to 1, but one is 'a'"),
    "float nodes": (nx.DiGraph([(0.0, 1.0)]), r"mine: .* must be the ranks 0 to 1, but one is 0\.0"),
    "bool nodes": (nx.DiGraph([(False, True)]), r"mine: .* must be the ranks 0 to 1, but one is False"),
    "parallel": (parallel(nx.MultiGraph), r"mine is a multigraph with parallel edges"),
    "parallel ways": (parallel(nx.MultiDiGraph), r"mine is a multigraph with parallel edges"),
    "empty list": ([], r"the list of graphs is empty; a schedule needs at least one"),
    "empty graph": (nx.Graph(), r"mine: the graph has no nodes"),
    "a number": (5, r"expected networkx graphs, one per step, not int"),
    "none at all": (None, r"expected networkx graphs, one per step, not NoneType"),
    "a word": ("ring", r"mine, graph 0: expected a networkx graph, not str"),
    "no graph": ([GOOD, {0: [1]}], r"mine, graph 1: expected a networkx graph, not dict"),
    "other size": ([GOOD, nx.path_graph(3)], r"mine, graph 1 has 3 nodes, but graph 0 has 2"),
    "second is bad": (
        [GOOD, weighted((0, 1, 2), (1, 1, 1))],
        r"mine, graph 1, node 0: the outgoing fractions sum to 2",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_graph_is_refused_with_where(what: str) -> None:
    graphs, complaint = BAD[what]
    with pytest.raises(BadGraph, match=complaint):
        topologies.from_graphs(graphs, name="mine")


def test_fractions_may_be_off_by_rounding_only() -> None:
    third = weighted(*[(u, v, 1 / 3) for u in range(3) for v in range(3)])
    assert topologies.from_graphs(third).kept(0, 0) == pytest.approx(1 / 3)
    topologies.from_graphs(weighted((0, 1, 0.5), (0, 0, 0.5 + 1e-10), (1, 1, 1)))
    with pytest.raises(BadGraph, match="node 0"):
        topologies.from_graphs(weighted((0, 1, 0.5), (0, 0, 0.5 + 1e-8), (1, 1, 1)))
