"""Stochastic gradient push, synchronous: push, then wait for this turn's parcels, up to a deadline.

Assran, Loizou, Ballas, Rabbat, "Stochastic Gradient Push for Distributed Deep Learning", 2018, arXiv:1811.10792.
Per shard: push the schedule's fractions of (x, w), add what the in-neighbours pushed in the same turn, z = x / w. Any
directed, time-varying schedule works. Without faults and with all deadlines met, the estimates are those of the product
of the mixing matrices. A parcel that misses its deadline is added when it comes. In the paper a step moves x, and so
moves z by 1 / w as much; here it moves z (`peers.methods.moves`). Where w is 1 the two are the same.

With ``rounds=R`` mass makes R hops in a step, over R turns of the schedule: each round passes on what the round before
brought (decision 39). Replicas are closer together then. That is meant for many peers and for unequal data; it
takes R times the bytes and R times the latency.

Use it when peers are about equally fast and steps should use current parameters.
"""

from __future__ import annotations

from gossip.policies.policy import Policy, momentum_option, rounds_option, variance_option

__all__ = ["SGP"]


class SGP(Policy):
    """PushSum, waiting for the turn's parcels."""

    name = "sgp"
    lag = 0

    def __init__(self, *, rounds: int = 1, momentum: str = "auto", variance: str = "swarm") -> None:
        self.rounds = rounds_option(self.name, rounds)
        self.momentum = momentum_option(self.name, momentum, in_step=True)
        self.variance = variance_option(self.name, variance)
