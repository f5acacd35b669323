"""Stochastic gradient push, synchronous: push, then wait for this turn's parcels, within reason.

Assran, Loizou, Ballas, Rabbat, "Stochastic Gradient Push for Distributed Deep Learning", 2018, arXiv:1811.10792.
Per shard: push the schedule's fractions of (x, w), add what the in-neighbours pushed in the same turn, z = x / w.
Any directed, time-varying schedule will do. With no faults and all deadlines met the estimates are those
of the product of the mixing matrices. A parcel that misses its deadline is added whenever it comes. In the paper a
step moves x, hence z by 1 / w as far; here it moves z (`peers.methods.moves`). Where w is 1 that is the same.

Use it when peers are about equally fast and steps should see fresh parameters.
"""

from __future__ import annotations

from gossip.policies.policy import Policy, momentum_option

__all__ = ["SGP"]


class SGP(Policy):
    """PushSum, waiting for the turn's parcels."""

    name = "sgp"
    lag = 0

    def __init__(self, *, momentum: str = "own") -> None:
        self.momentum = momentum_option(self.name, momentum)
