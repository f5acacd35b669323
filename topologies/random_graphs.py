"""Random graphs that are drawn once and do not change, with Metropolis fractions."""

from __future__ import annotations

import math

import numpy as np

from topologies.draws import below, draw, draw_array
from topologies.plans import metropolis, table
from topologies.registry import register
from topologies.schedule import Plan
from topologies.topology_errors import BadParameter

__all__ = ["erdos_renyi", "random_regular"]

_ATTEMPTS = 64


@register("random-regular", directed=False, sizes="n * d even")
def random_regular(n: int, *, d: int = 4, seed: int = 0) -> Plan:
    """A connected random graph in which every peer has d neighbours, drawn once.

    A circulant graph is shuffled by random switches, {a, b} and {c, e} to {a, e} and {c, b}, which keep all degrees. If
    the result is not connected, it is shuffled further. With fewer than d + 1 peers it is the complete graph.
    """
    if d < 1:
        raise BadParameter(f"random-regular: d, the number of neighbours, must be at least 1, not {d}")
    degree = min(d, n - 1)
    if degree == 1 and n > 2:
        raise BadParameter(f"random-regular with d=1 is not connected for n = {n}: use d=2 or more")
    if n * degree % 2:
        raise BadParameter(
            f"random-regular: n * d must be even, and {n} * {degree} is odd: "
            f"use d={degree - 1} or d={degree + 1}, or n = {n - 1} or n = {n + 1}"
        )
    neighbours: list[set[int]] = [set() for _ in range(n)]
    edges: list[tuple[int, int]] = []
    for rank in range(n):
        for hop in range(1, degree // 2 + 1):
            edges.append((rank, (rank + hop) % n))
        if degree % 2 and rank < n // 2:
            edges.append((rank, rank + n // 2))
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)
    for attempt in range(_ATTEMPTS):
        _switch(edges, neighbours, 10 * len(edges), seed, attempt)
        if _connected(neighbours):
            return table([metropolis(neighbours)])
    raise BadParameter(f"random-regular: no connected graph of {n} peers with d={d} was found; use a larger d")


@register("erdos-renyi", directed=False, paper="Erdos and Renyi 1959")
def erdos_renyi(n: int, *, p: float | None = None, seed: int = 0) -> Plan:
    """Each pair is joined with probability p (default 2 ln n / n), drawn again until it is connected."""
    # Rounded, so that a last-digit difference between two machines' logarithms cannot change the graph.
    chosen = min(1.0, round(2 * math.log(n) / n, 9)) if p is None and n > 1 else p if p is not None else 1.0
    if not 0 < chosen <= 1:
        raise BadParameter(f"erdos-renyi: p must be a probability above 0 and at most 1, not {chosen}")
    threshold = np.uint64(int(chosen * (1 << 32)))
    for attempt in range(_ATTEMPTS):
        neighbours: list[set[int]] = [set() for _ in range(n)]
        for rank in range(n - 1):
            others = np.arange(rank + 1, n)
            joined = (draw_array((seed, attempt, rank), others) >> np.uint64(32)) < threshold
            for other in others[joined].tolist():
                neighbours[rank].add(other)
                neighbours[other].add(rank)
        if _connected(neighbours):
            return table([metropolis(neighbours)])
    raise BadParameter(
        f"erdos-renyi: {_ATTEMPTS} draws with n = {n} and p={chosen:g} were all disconnected; use a larger p, "
        f"clearly above ln n / n = {math.log(n) / n:.3g}"
    )


def _switch(edges: list[tuple[int, int]], neighbours: list[set[int]], times: int, seed: int, attempt: int) -> None:
    for turn in range(times):
        bits = draw(seed, attempt, turn)
        i, j = (bits & 0xFFFFFFFF) % len(edges), below(len(edges), seed, attempt, turn)
        a, b = edges[i]
        c, e = edges[j] if bits >> 31 & 1 else edges[j][::-1]
        if len({a, b, c, e}) < 4 or e in neighbours[a] or b in neighbours[c]:
            continue
        neighbours[a].remove(b)
        neighbours[b].remove(a)
        neighbours[c].remove(e)
        neighbours[e].remove(c)
        neighbours[a].add(e)
        neighbours[e].add(a)
        neighbours[c].add(b)
        neighbours[b].add(c)
        edges[i], edges[j] = (a, e), (c, b)


def _connected(neighbours: list[set[int]]) -> bool:
    seen, todo = {0}, [0]
    while todo:
        for other in neighbours[todo.pop()]:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return len(seen) == len(neighbours)
