"""Graphs in which every rank sends over the same hops: rings and exponential graphs."""

from __future__ import annotations

from topologies.plans import shifts, uniform
from topologies.registry import register
from topologies.schedule import Plan

__all__ = ["bidirectional_ring", "exponential", "one_peer_exponential", "ring"]


@register("ring", directed=True)
def ring(n: int) -> Plan:
    """Each sends half to the next: the least traffic, and the slowest mixing, O(n^2) steps."""
    hops = uniform(n, [1])
    return shifts(n, 1, lambda _: hops)


@register("bidirectional-ring", directed=False)
def bidirectional_ring(n: int) -> Plan:
    """Each sends a third to the next and a third to the one before; O(n^2) steps."""
    hops = uniform(n, [1, -1])
    return shifts(n, 1, lambda _: hops)


@register("exponential", directed=True, paper="Assran et al. 2018, arXiv:1811.10792")
def exponential(n: int) -> Plan:
    """Each sends to those 1, 2, 4, 8, ... ahead, all in every step."""
    hops = uniform(n, [2**j for j in range(_powers(n))])
    return shifts(n, 1, lambda _: hops)


@register("one-peer-exponential", directed=True, paper="Assran et al. 2018, arXiv:1811.10792")
def one_peer_exponential(n: int) -> Plan:
    """Half goes 1, 2, 4, 8, ... ahead, one of these a step; exact in log2 n steps where n is a power of two.

    Exact only there (Ying et al. 2021, arXiv:2110.13363); for other n the error decays geometrically.
    """
    hops = [uniform(n, [2**j]) for j in range(_powers(n))] or [[]]
    return shifts(n, len(hops), lambda step: hops[step])


def _powers(n: int) -> int:
    """Return how many powers of two are below n: ceil(log2 n), in exact arithmetic."""
    return (n - 1).bit_length()
