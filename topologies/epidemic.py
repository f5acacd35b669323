"""Epidemic learning: every peer sends to s random others, which change in every step.

De Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma, "Epidemic Learning: Boosting Decentralized Learning
with Randomized Communication", 2023, arXiv:2310.01972. EL-Local draws each peer's targets independently. The number of
senders to a peer varies, so only PushSum averages correctly over it. EL-Oracle is a random s-regular digraph: every
peer receives from s others.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from topologies.draws import Shuffle, below, below_array
from topologies.registry import register
from topologies.schedule import Edges, Plan, Ranks
from topologies.topology_errors import BadParameter

__all__ = ["epidemic", "epidemic_regular"]

_PAPER = "De Vos et al. 2023, arXiv:2310.01972"


@register("epidemic", directed=True, paper=_PAPER)
def epidemic(n: int, *, s: int = 1, seed: int = 0) -> Plan:
    """Each peer draws s random others and sends to them: needs PushSum's weights (EL-Local).

    ``in_neighbours`` has to compute the draws of all n peers. The computation is vectorised.
    """
    count = _fanout("epidemic", n, s)
    fraction = 1.0 / (count + 1)

    def targets(rank: int, step: int) -> list[int]:
        # Floyd's sampling of `count` distinct numbers below n - 1; numbers from the rank on are one higher.
        chosen: dict[int, None] = {}  # a set that keeps the order
        for j in range(n - 1 - count, n - 1):
            t = below(j + 1, seed, step, j, rank)
            chosen[j if t in chosen else t] = None
        return [t + (t >= rank) for t in chosen]

    @lru_cache(maxsize=4)
    def senders(step: int) -> list[list[int]]:
        ranks = np.arange(n)
        chosen = np.empty((0, n), dtype=np.int64)
        for j in range(n - 1 - count, n - 1):
            t = below_array(j + 1, (seed, step, j), ranks)
            taken = (chosen == t).any(axis=0)
            chosen = np.vstack([chosen, np.where(taken, j, t)])
        arrived: list[list[int]] = [[] for _ in range(n)]
        for row in chosen + (chosen >= ranks):
            for rank, target in enumerate(row.tolist()):
                arrived[target].append(rank)
        return arrived

    def out(rank: int, step: int) -> Edges:
        return tuple([(target, fraction) for target in targets(rank, step)])

    return Plan(None, out, lambda rank, step: tuple(senders(step)[rank]))


@register("epidemic-regular", directed=True, paper=_PAPER)
def epidemic_regular(n: int, *, s: int = 1, seed: int = 0) -> Plan:
    """Each peer sends to s random others and receives from s: a random s-regular digraph per step (EL-Oracle).

    The peers form a random circle, and each sends to the next s peers in it. A peer computes its edges in O(s).
    """
    count = _fanout("epidemic-regular", n, s)
    fraction = 1.0 / (count + 1)
    circle_at = lru_cache(maxsize=4)(lambda step: Shuffle(n, seed, step))

    def along(rank: int, step: int, direction: int) -> Ranks:
        circle = circle_at(step)
        position = circle.index(rank)
        return tuple([circle((position + direction * j) % n) for j in range(1, count + 1)])

    def out(rank: int, step: int) -> Edges:
        return tuple([(target, fraction) for target in along(rank, step, +1)])

    return Plan(None, out, lambda rank, step: along(rank, step, -1))


def _fanout(name: str, n: int, s: int) -> int:
    if s < 1:
        raise BadParameter(f"{name}: s, the number of others that a peer sends to, must be at least 1, not {s}")
    return min(s, n - 1)
