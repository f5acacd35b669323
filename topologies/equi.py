"""EquiTopo: random circulant graphs that mix at a rate which does not depend on n.

Song, Li, Jin, Shi, Yan, Yin, Yuan, "Communication-Efficient Topologies for Decentralized Learning with O(1)
Consensus Rate", 2022, arXiv:2210.07881. The building block for a hop p is A = (n-1)/n on the edges
i -> i + p and 1/n on the diagonal. All peers draw the same hop from the shared seed.
"""

from __future__ import annotations

import math

from topologies.draws import Shuffle, below
from topologies.plans import shifts, symmetric
from topologies.registry import register
from topologies.schedule import Edges, Plan
from topologies.topology_errors import BadParameter

__all__ = ["equidyn", "equidyn_undirected", "equistatic"]

_PAPER = "Song et al. 2022, arXiv:2210.07881"


@register("equidyn", directed=True, paper=_PAPER)
def equidyn(n: int, *, eta: float = 0.5, seed: int = 0) -> Plan:
    """One random hop a step, the same for all: (1 - eta) I + eta A (OD-EquiDyn)."""
    fraction = _moved("equidyn", n, eta)
    return shifts(n, None, lambda step: [(1 + below(n - 1, seed, step), fraction)] if n > 1 else [])


@register("equidyn-undirected", directed=False, paper=_PAPER)
def equidyn_undirected(n: int, *, eta: float = 0.5, seed: int = 0) -> Plan:
    """Disjoint pairs (i, i + p) for one random hop p a step, scanned from a random start (OU-EquiDyn)."""
    fraction = _moved("equidyn-undirected", n, eta)

    def out(rank: int, step: int) -> Edges:
        if n == 1:
            return ()
        hop, start = 1 + below(n - 1, seed, step, 0), below(n, seed, step, 1)
        partner = _partner(n, hop, (rank - start) % n)
        return () if partner is None else (((start + partner) % n, fraction),)

    return symmetric(None, out)


@register("equistatic", directed=True, paper=_PAPER)
def equistatic(n: int, *, m: int | None = None, seed: int = 0) -> Plan:
    """A fixed set of m random hops (default ceil(log2 n)), the mean of their blocks A (D-EquiStatic)."""
    wanted = max(1, (n - 1).bit_length()) if m is None else m
    if wanted < 1:
        raise BadParameter(f"equistatic: m, the number of hops, must be at least 1, not {wanted}")
    count = min(wanted, n - 1)
    chosen: list[int] = []
    attempt = 0
    while n > 1 and math.gcd(n, *chosen) > 1:  # hops with a common divisor would leave the graph in pieces
        shuffle = Shuffle(n - 1, seed, attempt)
        chosen = [1 + shuffle(position) for position in range(count)]
        attempt += 1
    hops = [(hop, (n - 1) / n / count) for hop in chosen]
    return shifts(n, 1, lambda _: hops)


def _moved(name: str, n: int, eta: float) -> float:
    """Return the fraction that leaves a peer over the one edge of its step."""
    if not 0 < eta <= 1:
        raise BadParameter(f"{name}: eta must be a fraction above 0 and at most 1, not {eta}")
    return eta * (n - 1) / n


def _partner(n: int, hop: int, i: int) -> int | None:
    """Return the partner of ``i``, or None, when 0, 1, ... in turn take the rank one hop ahead if both are free.

    The formula is closed, because a peer should not scan the swarm. For a hop up to n/2 the pairs come in blocks of
    2*hop ranks: the first half of a block pairs with the second half, and an incomplete last block stays idle. A longer
    hop is -q with q = n - hop: the first q ranks pair with the last q, around the end, and the ranks between them pair
    in blocks of 2*q.
    """
    if 2 * hop <= n:
        return _in_blocks(n, hop, i)
    q = n - hop
    if i < q:
        return n - q + i
    if i >= n - q:
        return i - (n - q)
    inner = _in_blocks(n - 2 * q, q, i - q)
    return None if inner is None else inner + q


def _in_blocks(length: int, half: int, i: int) -> int | None:
    if i // half % 2:
        return i - half
    return i + half if i + half < length else None
