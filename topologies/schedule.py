"""A schedule: which fraction of its mass each peer sends to which others, step by step.

The convention everywhere in this project: an edge u -> v carries the fraction of u's mass that goes to v. The self-loop
is the fraction that u keeps. The fractions out of each u sum to 1. In matrix notation the matrix of a step, with
W[v, u] = fraction, is column stochastic. If its rows sum to 1 as well, it is doubly stochastic, and plain averaging
needs no weights. PushSum needs only the columns to sum to 1.

A schedule is a pure function of its arguments. Peers exchange no messages to agree on the edges of a step. Each peer
computes its own edges, and only those, in time proportional to its degree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import networkx as nx

from topologies.topology_errors import TopologyError

__all__ = ["Edge", "Edges", "Plan", "Ranks", "Schedule"]

Edge = tuple[int, float]  #: (destination, fraction of the sender's mass)
Edges = tuple[Edge, ...]
Ranks = tuple[int, ...]

#: A smaller remainder is a rounding error, not a fraction that a peer keeps.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Plan:
    """The result of a topology function: the edges of one rank at one step, in both directions.

    ``out`` and ``into`` are called with a rank in ``range(n)`` and a step: in ``range(period)`` if there is a period,
    otherwise any step from 0 on. ``out`` lists no self-loop, no destination twice and no fraction of zero.
    """

    #: The number of steps after which the schedule repeats; None if it never does.
    period: int | None
    out: Callable[[int, int], Edges]
    into: Callable[[int, int], Ranks]


@dataclass(frozen=True)
class Schedule:
    """A time-varying directed graph on the ranks ``0 .. n-1``."""

    name: str
    n: int
    plan: Plan = field(repr=False)
    #: The parameters that the plan was made with, defaults included.
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def period(self) -> int | None:
        """The number of steps after which the schedule repeats; None if it never does."""
        return self.plan.period

    def out_edges(self, rank: int, step: int) -> Edges:
        """Return ``((destination, fraction), ...)`` of ``rank`` at ``step``, without the self-loop."""
        return tuple(sorted(self.plan.out(rank, self._phase(rank, step))))

    def in_neighbours(self, rank: int, step: int) -> Ranks:
        """Return the ranks that send to ``rank`` at ``step``, ascending, without ``rank`` itself."""
        return tuple(sorted(self.plan.into(rank, self._phase(rank, step))))

    def kept(self, rank: int, step: int) -> float:
        """Return the fraction that ``rank`` keeps at ``step``: the weight of its self-loop."""
        rest = 1.0 - math.fsum(fraction for _, fraction in self.out_edges(rank, step))
        return rest if rest > _ROUNDING else 0.0

    def graph_at(self, step: int) -> nx.DiGraph[int]:
        """Return the whole graph of one step, self-loops included, with ``weight`` on every edge. O(edges)."""
        graph: nx.DiGraph[int] = nx.DiGraph(name=self.name, step=step)
        graph.add_nodes_from(range(self.n))
        for rank in range(self.n):
            for destination, fraction in self.out_edges(rank, step):
                graph.add_edge(rank, destination, weight=fraction)
            kept = self.kept(rank, step)
            if kept:
                graph.add_edge(rank, rank, weight=kept)
        return graph

    def _phase(self, rank: int, step: int) -> int:
        if not 0 <= rank < self.n:
            raise TopologyError(f"{self.name} has no rank {rank}: its ranks are 0 to {self.n - 1}")
        if step < 0:
            raise TopologyError(f"{self.name} has no step {step}: steps are counted from 0")
        return step % self.period if self.period else step
