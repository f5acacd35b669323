"""The schedule for as many peers as there are: the topology that was asked for, or what stands in for it.

Peers come and go, and not every topology exists for every number of them, nor suits the algorithm for each: a hypercube
needs a power of two, a graph from a file its own number, and a star with more leaves has a hub with more neighbours.
What stands in is the policy's to say, and takes any number. All peers plan alone, and find the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gossip.errors import SettingsError
from gossip.policies import Policy
from topologies import Schedule, TopologyError, parse

__all__ = ["planner"]


def planner(
    topology: str, policy: Policy, peers: int, seed: int, tell: Callable[[str], None] | None = None
) -> Callable[[int], Schedule]:
    """Return what plans the schedule for a number of members.

    Args:
        topology: what the user asked for.
        policy: what the schedule has to suit.
        peers: for how many it was asked for: if it does not exist for them, or does not suit, that is an error.
        seed: what random topologies are drawn by.
        tell: is called once, with a sentence that the user should read, when something else stands in.
    """
    told = tell is None

    @lru_cache(maxsize=64)
    def schedule(n: int) -> Schedule:
        nonlocal told
        try:
            found = parse(topology, n, seed=seed)
            policy.check(found)
        except (TopologyError, SettingsError):
            if n == peers:
                raise
        else:
            return found
        # Alone there is nobody to exchange with, and a newcomer is alone until it is let in.
        if n > 1 and not told and tell is not None:
            told = True
            usual = policy.default_topology
            tell(f"{topology} with {policy.name} is not for {n} peers; where it is not, {usual} stands in")
        return parse(policy.default_topology, n, seed=seed)

    return schedule
