"""Hypercubes: ranks are neighbours when their numbers differ in one bit."""

from __future__ import annotations

from topologies.plans import symmetric
from topologies.registry import register
from topologies.schedule import Edges, Plan
from topologies.topology_errors import unsupported

__all__ = ["hypercube", "one_peer_hypercube"]


@register("hypercube", directed=False, sizes="powers of two")
def hypercube(n: int) -> Plan:
    """Each peer exchanges with the log2 n ranks that differ in one bit, with all of them in every step."""
    bits = _bits("hypercube", n)

    def out(rank: int, _: int) -> Edges:
        return tuple([(rank ^ 1 << bit, 1.0 / (bits + 1)) for bit in range(bits)])

    return symmetric(1, out)


@register("one-peer-hypercube", directed=False, sizes="powers of two")
def one_peer_hypercube(n: int) -> Plan:
    """Pairs of ranks that differ in one bit average, one bit per step: exact in log2 n steps."""
    bits = _bits("one-peer-hypercube", n)

    def out(rank: int, step: int) -> Edges:
        return ((rank ^ 1 << step, 0.5),) if bits else ()

    return symmetric(max(bits, 1), out)


def _bits(name: str, n: int) -> int:
    if n & (n - 1):
        raise unsupported(name, n, "a power of two", lambda m: m & (m - 1) == 0)
    return n.bit_length() - 1
