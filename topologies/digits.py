"""De Bruijn and Kautz digraphs: with out-degree d, every rank is reached in about log_d n steps.

The generalised forms exist for every n. De Bruijn: i -> d*i + r (mod n) for r in 0..d-1 (Reddy, Pradhan, Kuhl
1980; Imase and Itoh 1981). Kautz, by Imase and Itoh 1983: i -> -d*i - r (mod n) for r in 1..d, which is
the de Bruijn successor counted down from n - 1. The in-degree of each rank is d as well, so the step is doubly
stochastic. Where n is a power of d, the average is exact after log_d n steps. That holds only without added self-loops:
a peer keeps only what the graph itself sends back to it.
"""

from __future__ import annotations

from collections.abc import Callable

from topologies.registry import register
from topologies.schedule import Edges, Plan, Ranks
from topologies.topology_errors import BadParameter

__all__ = ["de_bruijn", "kautz"]


@register("de-bruijn", directed=True, paper="Imase and Itoh 1981")
def de_bruijn(n: int, *, d: int = 2) -> Plan:
    """All mass goes to d others, i -> d*i + 0..d-1; exact in log_d n steps if n is a power of d."""
    return _successors("de-bruijn", n, d, lambda i: i)


@register("kautz", directed=True, paper="Imase and Itoh 1983")
def kautz(n: int, *, d: int = 2) -> Plan:
    """Like de-bruijn with i -> -d*i - 1..d: the largest known digraph for its degree and diameter."""
    return _successors("kautz", n, d, lambda i: n - 1 - i)


def _successors(name: str, n: int, d: int, reflect: Callable[[int], int]) -> Plan:
    if d < 2:
        raise BadParameter(f"{name}: d, the out-degree of a rank, must be at least 2, not {d}")

    def out(rank: int, _: int) -> Edges:
        # If d exceeds n, several of the d edges lead to one rank. They become one edge with the sum of their fractions.
        ways = [(reflect((d * rank + r) % n), d // n + (r < d % n)) for r in range(min(d, n))]
        return tuple([(other, count / d) for other, count in ways if other != rank])

    def into(rank: int, _: int) -> Ranks:
        # d*i + r = v + n*c has one solution (i, r) for each c in 0..d-1.
        senders = {(reflect(rank) + n * c) // d for c in range(d)} if d < n else set(range(n))
        return tuple(senders - {rank})

    return Plan(1, out, into)
