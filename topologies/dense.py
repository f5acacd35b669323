"""Graphs with a peer of degree n - 1: the references against which sparse graphs are measured."""

from __future__ import annotations

from topologies.plans import shifts, symmetric, uniform
from topologies.registry import register
from topologies.schedule import Edges, Plan

__all__ = ["complete", "star"]


@register("complete", directed=False)
def complete(n: int) -> Plan:
    """Each peer sends 1/n to every other: exact in one step, with n - 1 models of traffic per peer."""
    hops = uniform(n, range(1, n))
    return shifts(n, 1, lambda _: hops)


@register("star", directed=False)
def star(n: int) -> Plan:
    """Rank 0 exchanges with every peer, with Metropolis fractions 1/n; rank 0 is a centre and a bottleneck."""

    def out(rank: int, _: int) -> Edges:
        others = range(1, n) if rank == 0 else (0,)
        return tuple([(other, 1.0 / n) for other in others])

    return symmetric(1, out)
