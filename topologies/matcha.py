"""MATCHA: spend a communication budget on the links that matter most.

Wang, Sahu, Yang, Joshi, Kar, "MATCHA: Speeding Up Decentralized SGD via Matching Decomposition Sampling", 2019,
arXiv:1905.09435. The user's graph is split into matchings (sets of links that share no peer); each matching
is active in a step with its own probability. The probabilities maximise the second eigenvalue of the expected
Laplacian, so that the expected graph is as well connected as the budget allows.

Here the active links of a step get Metropolis fractions instead of the paper's single global coefficient. Metropolis
fractions need no eigenvalues, never leave a peer with a negative share, and give a lone pair the full one half.

Every peer computes the same probabilities alone. So the arithmetic is restricted to operations that IEEE 754 rounds the
same everywhere: element-wise + - * / and sqrt, sequential sums, and `math.fsum`; no BLAS, no eigenvalue routine.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from topologies.draws import chance
from topologies.plans import symmetric
from topologies.registry import get, register
from topologies.schedule import Edges, Plan, Schedule
from topologies.topology_errors import BadParameter

__all__ = ["activation_probabilities", "edge_colouring", "matcha"]

Link = tuple[int, int]
Vector = npt.NDArray[np.float64]

_TURNS = 60


@register("matcha", directed=False, paper="Wang et al. 2019, arXiv:1905.09435")
def matcha(n: int, *, graph: str = "random-regular", budget: float = 0.5, seed: int = 0) -> Plan:
    """A random part of a graph in each step, critical links more often; budget = the expected share of links."""
    if not 0 < budget <= 1:
        raise BadParameter(f"matcha: budget must be a fraction above 0 and at most 1, not {budget}")
    links = _links(get(graph, n, seed=seed))
    matchings = edge_colouring(n, links)
    probabilities = activation_probabilities(n, matchings, budget)
    partners: list[dict[int, int]] = [{} for _ in range(n)]
    for number, matching in enumerate(matchings):
        for a, b in matching:
            partners[a][number] = b
            partners[b][number] = a

    @lru_cache(maxsize=4)
    def active(step: int) -> frozenset[int]:
        return frozenset(j for j, p in enumerate(probabilities) if chance(p, seed, step, j))

    def met(rank: int, step: int) -> list[int]:
        now = active(step)
        return [other for number, other in partners[rank].items() if number in now]

    def out(rank: int, step: int) -> Edges:
        mine = met(rank, step)
        return tuple([(other, 1.0 / (1 + max(len(mine), len(met(other, step))))) for other in mine])

    return symmetric(None, out)


def edge_colouring(n: int, links: list[Link]) -> list[list[Link]]:
    """Split the links of a simple graph into at most (largest degree + 1) matchings (Misra and Gries 1992)."""
    degree = [0] * n
    for a, b in links:
        degree[a] += 1
        degree[b] += 1
    colours = range(max(degree, default=0) + 1)
    #: at[u][c] is the neighbour that u is joined to in colour c.
    at: list[dict[int, int]] = [{} for _ in range(n)]

    def free(u: int) -> int:
        return next(c for c in colours if c not in at[u])

    def colour_of(u: int, v: int) -> int:
        return next(c for c, other in at[u].items() if other == v)

    def paint(u: int, v: int, c: int) -> None:
        at[u][c], at[v][c] = v, u

    for u, v in links:
        # A fan of u: each next link's colour is free at the leaf before it.
        fan = [v]
        while True:
            following = next((w for c, w in sorted(at[u].items()) if w not in fan and c not in at[fan[-1]]), None)
            if following is None:
                break
            fan.append(following)
        c, d = free(u), free(fan[-1])
        # Swap the colours on the path d, c, d, ... that starts at u: afterwards d is free at u.
        path = [u]
        while (following := at[path[-1]].get((d, c)[(len(path) - 1) % 2])) is not None:
            path.append(following)
        for position, (a, b) in enumerate(pairwise(path)):
            old = (d, c)[position % 2]
            del at[a][old], at[b][old]
        for position, (a, b) in enumerate(pairwise(path)):
            paint(a, b, (c, d)[position % 2])
        # Rotate the part of the fan up to a leaf where d is free, as far as it is still a fan.
        for last, leaf in enumerate(fan):
            if d not in at[leaf]:
                break
            assert colour_of(u, fan[last + 1]) not in at[leaf]
        for position in range(last):
            c = colour_of(u, fan[position + 1])
            del at[u][c], at[fan[position + 1]][c]
            paint(u, fan[position], c)
        paint(u, fan[last], d)
    matchings: dict[int, list[Link]] = {}
    for u, v in links:
        matchings.setdefault(colour_of(u, v), []).append((u, v))
    return [matchings[c] for c in sorted(matchings)]


def activation_probabilities(n: int, matchings: list[list[Link]], budget: float) -> list[float]:
    """Return the probability with which each matching is active; they sum to budget * the number of matchings.

    The second eigenvalue of the expected Laplacian, sum_j p_j L_j, is concave in p, and (v' L_j v)_j is a
    supergradient for its unit eigenvector v: projected ascent with shrinking steps. v is followed by power
    iteration from one turn to the next, and the mean of the later half of the turns is taken.
    """
    count = len(matchings)
    if count == 0 or budget == 1:
        return [1.0] * count
    ends = [np.array(matching, dtype=np.int64).T for matching in matchings]
    tail, head = np.concatenate(ends, axis=1)
    number = np.repeat(np.arange(count), [len(matching) for matching in matchings])
    bound = 2.0 * (np.bincount(np.concatenate([tail, head]), minlength=n).max())
    p = np.full(count, budget)
    total = np.zeros(count)
    # Any start with a part of every eigenvector works; this one is the same on every machine.
    v: Vector = np.arange(n, dtype=np.float64) * 0.6180339887498949 % 1.0
    for turn in range(1, _TURNS + 1):
        for _ in range(200 if turn == 1 else 40):
            v = _unit(bound * v - _laplacian(n, tail, head, p[number], v))
        across = v[tail] - v[head]
        gain = np.bincount(number, weights=across * across, minlength=count)
        longest = math.sqrt(math.fsum((gain * gain).tolist()))
        p = _onto_budget(p + gain * (0.5 * budget / (longest * math.sqrt(turn))), budget * count)
        if 2 * turn > _TURNS:
            total = total + p
    return [float(x) for x in total / (_TURNS - _TURNS // 2)]


def _laplacian(n: int, tail: Any, head: Any, weight: Vector, v: Vector) -> Vector:
    flow = weight * (v[tail] - v[head])
    outflow = np.bincount(tail, weights=flow, minlength=n)
    return np.asarray(outflow - np.bincount(head, weights=flow, minlength=n), dtype=np.float64)


def _unit(v: Vector) -> Vector:
    """Subtract the mean, which is the eigenvector of 0, and scale to length 1."""
    v = v - math.fsum(v.tolist()) / len(v)
    return v / math.sqrt(math.fsum((v * v).tolist()))


def _onto_budget(p: Vector, total: float) -> Vector:
    """Return the nearest point with 0 <= p <= 1 that sums to ``total``, by bisection on a common shift."""
    low, high = -float(p.max()) - 1.0, 1.0 - float(p.min()) + 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if math.fsum(np.clip(p + middle, 0.0, 1.0).tolist()) < total:
            low = middle
        else:
            high = middle
    return np.clip(p + high, 0.0, 1.0)


def _links(graph: Schedule) -> list[Link]:
    if graph.period != 1:
        raise BadParameter(f"matcha: graph must be the same in every step, but {graph.name} changes; use a static one")
    links = []
    for rank in range(graph.n):
        for other, _ in graph.out_edges(rank, 0):
            if rank not in graph.in_neighbours(other, 0) or rank not in dict(graph.out_edges(other, 0)):
                raise BadParameter(f"matcha: graph must be undirected, but {graph.name} is directed")
            if rank < other:
                links.append((rank, other))
    return links
