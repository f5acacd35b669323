"""Graphs in which every rank sends over the same hops: rings and exponential graphs."""

from __future__ import annotations

from topologies.plans import shifts, uniform
from topologies.registry import register
from topologies.schedule import Plan

__all__ = ["bidirectional_ring", "exponential", "one_peer_exponential", "ring"]


@register("ring", directed=True)
def ring(n: int) -> Plan:
    """Each peer sends half to the next: the least traffic, and the slowest mixing, O(n^2) steps."""
    hops = uniform(n, [1])
    return shifts(n, 1, lambda _: hops)


@register("bidirectional-ring", directed=False)
def bidirectional_ring(n: int) -> Plan:
    """Each peer sends a third to the next and a third to the previous one; O(n^2) steps."""
    hops = uniform(n, [1, -1])
    return shifts(n, 1, lambda _: hops)


@register("exponential", directed=True, paper="Assran et al. 2018, arXiv:1811.10792")
def exponential(n: int) -> Plan:
    """Each peer sends to the peers 1, 2, 4, 8, ... ahead, to all of them in every step."""
    hops = uniform(n, [2**j for j in range(_powers(n))])
    return shifts(n, 1, lambda _: hops)


@register("one-peer-exponential", directed=True, paper="Assran et al. 2018, arXiv:1811.10792")
def one_peer_exponential(n: int) -> Plan:
    """Half goes 1, 2, 4, 8, ... ahead, one hop per step; exact in log2 n steps if n is a power of two.

    For other n the average is never exact (Ying et al. 2021, arXiv:2110.13363): the error decays geometrically.
    """
    hops = [uniform(n, [2**j]) for j in range(_powers(n))] or [[]]
    return shifts(n, len(hops), lambda step: hops[step])


def _powers(n: int) -> int:
    """Return how many powers of two are below n: ceil(log2 n), in exact arithmetic."""
    return (n - 1).bit_length()
