"""MATCHA: a proper edge colouring, probabilities that meet the budget, and the critical links most often."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest

import topologies
from topologies import BadParameter
from topologies.matcha import activation_probabilities, edge_colouring

Link = tuple[int, int]


def links_of(graph: nx.Graph) -> list[Link]:
    return sorted((min(edge), max(edge)) for edge in graph.edges())


def random_graphs(seed: int) -> list[nx.Graph]:
    return [
        nx.gnp_random_graph(30, 0.1, seed=seed),
        nx.gnp_random_graph(25, 0.5, seed=seed),
        nx.gnp_random_graph(14, 0.9, seed=seed),
        nx.random_regular_graph(4, 25, seed=seed),
        nx.random_regular_graph(7, 16, seed=seed),
        nx.barabasi_albert_graph(40, 3, seed=seed),
        nx.random_geometric_graph(40, 0.3, seed=seed),
        nx.watts_strogatz_graph(31, 6, 0.4, seed=seed),
    ]


FAMOUS = [
    nx.petersen_graph(),  # needs degree + 1 colours
    nx.complete_graph(9),  # so does an odd complete graph
    nx.complete_graph(10),
    nx.cycle_graph(7),
    nx.star_graph(8),
    nx.path_graph(2),
    nx.complete_bipartite_graph(4, 7),
    nx.barbell_graph(6, 0),
    nx.empty_graph(5),
]


def check_colouring(graph: nx.Graph, links: list[Link]) -> None:
    matchings = edge_colouring(graph.number_of_nodes(), links)
    assert sorted(link for matching in matchings for link in matching) == sorted(links)
    for matching in matchings:
        assert matching
        ends = [end for link in matching for end in link]
        assert len(ends) == len(set(ends)), "two links of a matching share a peer"
    assert len(matchings) <= max(dict(graph.degree()).values()) + 1


@pytest.mark.parametrize("seed", range(12))
def test_the_colouring_of_a_random_graph_is_proper_and_frugal(seed: int) -> None:
    for graph in random_graphs(seed):
        links = links_of(graph)
        check_colouring(graph, links)
        shuffled = [links[i] for i in np.random.default_rng(seed).permutation(len(links))]
        check_colouring(graph, shuffled)


@pytest.mark.parametrize("graph", FAMOUS, ids=str)
def test_the_colouring_of_a_famous_graph_is_proper_and_frugal(graph: nx.Graph) -> None:
    check_colouring(graph, links_of(graph))


def connectivity(n: int, matchings: list[list[Link]], probabilities: list[float]) -> float:
    """Return the second eigenvalue of the expected Laplacian."""
    laplacian = np.zeros((n, n))
    for matching, p in zip(matchings, probabilities, strict=True):
        for a, b in matching:
            laplacian[[a, b], [a, b]] += p
            laplacian[[a, b], [b, a]] -= p
    return float(np.linalg.eigvalsh(laplacian)[1])


def geometric() -> nx.Graph:
    return nx.random_geometric_graph(30, 0.3, seed=11)


@pytest.mark.parametrize("budget", [0.05, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("graph", [nx.barbell_graph(6, 0), geometric(), nx.petersen_graph(), nx.path_graph(2)], ids=str)
def test_the_probabilities_meet_the_budget(graph: nx.Graph, budget: float) -> None:
    n = graph.number_of_nodes()
    matchings = edge_colouring(n, links_of(graph))
    probabilities = activation_probabilities(n, matchings, budget)
    assert len(probabilities) == len(matchings)
    assert all(0 <= p <= 1 for p in probabilities)
    assert math.fsum(probabilities) == pytest.approx(budget * len(matchings), abs=1e-9)


@pytest.mark.parametrize(
    ("graph", "budget", "factor"),
    [(nx.barbell_graph(6, 0), 0.3, 1.5), (nx.barbell_graph(6, 0), 0.5, 1.3), (geometric(), 0.3, 1.01)],
    ids=["barbell-0.3", "barbell-0.5", "geometric-0.3"],
)
def test_the_probabilities_connect_better_than_equal_ones(graph: nx.Graph, budget: float, factor: float) -> None:
    n = graph.number_of_nodes()
    assert nx.is_connected(graph)
    matchings = edge_colouring(n, links_of(graph))
    chosen = connectivity(n, matchings, activation_probabilities(n, matchings, budget))
    assert chosen >= factor * connectivity(n, matchings, [budget] * len(matchings))


def test_no_small_change_of_the_probabilities_connects_better() -> None:
    """At the optimum moving a little from one matching to another gains next to nothing."""
    graph = nx.barbell_graph(5, 0)
    n = graph.number_of_nodes()
    matchings = edge_colouring(n, links_of(graph))
    chosen = activation_probabilities(n, matchings, 0.4)
    best = connectivity(n, matchings, chosen)
    for a in range(len(chosen)):
        for b in range(len(chosen)):
            if a != b and chosen[a] >= 0.05 and chosen[b] <= 0.95:
                moved = [p - 0.05 * (j == a) + 0.05 * (j == b) for j, p in enumerate(chosen)]
                assert connectivity(n, matchings, moved) <= 1.05 * best


@pytest.mark.parametrize("size", [4, 6, 9])
def test_the_bridge_is_active_most_often(size: int) -> None:
    graph = nx.barbell_graph(size, 0)
    bridge = (size - 1, size)
    matchings = edge_colouring(2 * size, links_of(graph))
    probabilities = activation_probabilities(2 * size, matchings, 0.4)
    of_bridge = next(p for matching, p in zip(matchings, probabilities, strict=True) if bridge in matching)
    assert of_bridge == max(probabilities)
    assert of_bridge > 0.5


def test_a_full_budget_activates_every_link_in_every_step() -> None:
    whole = topologies.get("random-regular", 20, seed=3)
    schedule = topologies.get("matcha", 20, budget=1, seed=3)
    for step in range(10):
        for rank in range(20):
            assert schedule.in_neighbours(rank, step) == whole.in_neighbours(rank, 0)


@pytest.mark.parametrize("budget", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("graph", ["random-regular", "star", "torus"])
def test_the_matchings_that_are_active_are_the_share_of_the_budget(graph: str, budget: float) -> None:
    """On average over the matchings: the star has one link in each, so for it that is the traffic."""
    n, steps = 24, 800
    whole = topologies.get(graph, n, seed=1)
    schedule = topologies.get("matcha", n, graph=graph, budget=budget, seed=1)
    links = sum(len(whole.out_edges(rank, 0)) for rank in range(n))
    active = sum(len(schedule.out_edges(rank, step)) for rank in range(n) for step in range(steps))
    assert active / steps / links == pytest.approx(budget, abs=0.05)


def test_links_are_active_only_if_the_graph_has_them_and_get_metropolis_fractions() -> None:
    whole = topologies.get("erdos-renyi", 18, seed=2)
    schedule = topologies.get("matcha", 18, graph="erdos-renyi", budget=0.6, seed=2)
    for step in range(20):
        degree = [len(schedule.out_edges(rank, step)) for rank in range(18)]
        for rank in range(18):
            for other, fraction in schedule.out_edges(rank, step):
                assert other in whole.in_neighbours(rank, 0)
                assert fraction == 1 / (1 + max(degree[rank], degree[other]))


@pytest.mark.parametrize("graph", ["ring", "exponential", "de-bruijn", "equistatic"])
def test_a_directed_graph_is_refused(graph: str) -> None:
    with pytest.raises(BadParameter, match=f"matcha: graph must be undirected, but {graph} is directed"):
        topologies.get("matcha", 12, graph=graph)


@pytest.mark.parametrize("graph", ["base", "random-matching", "one-peer-exponential", "matcha"])
def test_a_graph_that_varies_is_refused(graph: str) -> None:
    with pytest.raises(BadParameter, match=f"matcha: graph must be the same in every step, but {graph}"):
        topologies.get("matcha", 12, graph=graph)


def test_a_graph_that_does_not_exist_is_refused_as_itself() -> None:
    with pytest.raises(topologies.UnknownTopology, match="did you mean torus"):
        topologies.get("matcha", 12, graph="torsu")
    with pytest.raises(topologies.UnsupportedSize, match="hypercube needs a power of two, not n = 12"):
        topologies.get("matcha", 12, graph="hypercube")
