"""A new random pairing of all peers in every step."""

from __future__ import annotations

from functools import lru_cache

from topologies.draws import Shuffle
from topologies.plans import symmetric
from topologies.registry import register
from topologies.schedule import Edges, Plan

__all__ = ["random_matching"]


@register("random-matching", directed=False, paper="Boyd et al. 2006, randomized gossip")
def random_matching(n: int, *, seed: int = 0) -> Plan:
    """A new random pairing in every step, and each pair averages; with an odd n one peer is idle."""
    shuffle_at = lru_cache(maxsize=4)(lambda step: Shuffle(n, seed, step))

    def out(rank: int, step: int) -> Edges:
        shuffle = shuffle_at(step)
        position = shuffle.index(rank) ^ 1  # positions 0 and 1 pair, 2 and 3, ...
        return ((shuffle(position), 0.5),) if position < n else ()

    return symmetric(None, out)
