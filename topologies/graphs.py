"""Turn the user's own graphs into a schedule, and check them before anything runs on them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

import networkx as nx

from topologies.plans import metropolis, table
from topologies.schedule import Edge, Schedule
from topologies.topology_errors import BadGraph

__all__ = ["from_graphs"]

_TOLERANCE = 1e-9
_LARGEST = sys.float_info.max  # an integer may be larger than any float


def from_graphs(graphs: Iterable[nx.Graph[Any]] | nx.Graph[Any], *, name: str = "custom") -> Schedule:
    """Return the schedule that repeats the given graphs, one per step.

    Every graph has the nodes 0 .. n-1. If all edges have a ``weight``, the weights are the fractions. The fractions out
    of each node, including its self-loop, must sum to 1. If no edge has a weight, a node shares evenly: an undirected
    graph gets Metropolis fractions, and a directed graph gets 1 / (out-degree + 1) for each edge and for the self-loop.
    """
    listed = [graphs] if isinstance(graphs, nx.Graph) else _listed(graphs)
    if not listed:
        raise BadGraph(f"{name}: the list of graphs is empty; a schedule needs at least one graph")
    steps = []
    for step, graph in enumerate(listed):
        where = f"{name}, graph {step}" if len(listed) > 1 else name
        if not isinstance(graph, nx.Graph):
            raise BadGraph(f"{where}: expected a networkx graph, not {type(graph).__name__}")
        if graph.number_of_nodes() != listed[0].number_of_nodes():
            raise BadGraph(
                f"{where} has {graph.number_of_nodes()} nodes, but graph 0 has {listed[0].number_of_nodes()}; "
                "all graphs must have the same peers"
            )
        steps.append(_edges(graph, where))
    return Schedule(name, len(steps[0]), table(steps))


def _listed(graphs: Any) -> list[Any]:
    try:
        return list(graphs)
    except TypeError:
        raise BadGraph(f"expected networkx graphs, one per step, not {type(graphs).__name__}") from None


def _edges(graph: nx.Graph[Any], where: str) -> list[list[Edge]]:
    n = graph.number_of_nodes()
    if n == 0:
        raise BadGraph(f"{where}: the graph has no nodes")
    for node in graph:
        if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node < n:
            raise BadGraph(f"{where}: the {n} nodes must be the ranks 0 to {n - 1}, but one is {node!r}")
    simple = nx.DiGraph(graph) if graph.is_directed() else nx.Graph(graph)
    if graph.number_of_edges() != simple.number_of_edges():
        raise BadGraph(f"{where} is a multigraph with parallel edges; give each edge once")
    weighted = [(u, v) for u, v, data in graph.edges(data=True) if "weight" in data]
    if not weighted:
        return _unweighted(graph, n)
    if len(weighted) < graph.number_of_edges():
        u, v = next((u, v) for u, v, data in graph.edges(data=True) if "weight" not in data)
        raise BadGraph(f"{where}, edge {u} -> {v}: the edge has no weight, but other edges do; give all or none")
    edges: list[list[Edge]] = [[] for _ in range(n)]
    sums: list[list[float]] = [[] for _ in range(n)]
    for u, v, data in nx.DiGraph(graph).edges(data=True):
        weight = data["weight"]
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not abs(weight) <= _LARGEST:
            raise BadGraph(f"{where}, edge {u} -> {v}: the weight must be a finite number, not {weight!r}")
        if weight < 0:
            raise BadGraph(f"{where}, edge {u} -> {v}: the weight is a fraction of mass, so it cannot be {weight}")
        sums[u].append(weight)
        if weight and u != v:
            edges[u].append((v, float(weight)))
    for u in range(n):
        total = math.fsum(sums[u])
        if abs(total - 1) > _TOLERANCE:
            hint = "" if graph.has_edge(u, u) else f"; add a self-loop {u} -> {u} for the fraction that it keeps"
            raise BadGraph(f"{where}, node {u}: the outgoing fractions sum to {total:.9g}, not 1{hint}")
        edges[u] = [(v, fraction / total) for v, fraction in edges[u]]  # removes what rounding added to the sum
    return edges


def _unweighted(graph: nx.Graph[Any], n: int) -> list[list[Edge]]:
    neighbours = [set(graph[u]) - {u} for u in range(n)]
    if not graph.is_directed():
        return metropolis(neighbours)
    return [[(v, 1.0 / (len(mine) + 1)) for v in sorted(mine)] for mine in neighbours]
