"""Gossiping SGD, pulling: every tau steps, from a random peer, without waiting.

Jin, Yuan, Iandola, Keutzer, "How to scale distributed deep learning?", 2016, arXiv:1611.04581: x_i becomes the mean of
x_i and x_j for a random j, and x_j does not change, so the average over all peers jumps with every pull. Here j gives
mass away: the fraction that the schedule names, usually one half. z_i moves towards z_j in proportion to the weight
that came (by a third, if the weights were equal), z_j does not change, and the average over all mass does not change
either. A peer that is often pulled from has less weight, and so counts less, until it pulls.

A lost pull is not repeated. The mass that answers a pull is kept by its sender until it is acknowledged, like any
parcel. Use it to compare with the paper; a push needs one message where a pull needs two.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Policy, momentum_option

__all__ = ["GossipPull"]


class GossipPull(Policy):
    """Pull from the neighbour of the turn every ``tau`` steps, asynchronous."""

    name = "gossip-pull"
    pulls = True

    def __init__(self, *, tau: int = 1, momentum: str = "own") -> None:
        if tau < 1:
            raise SettingsError(f"gossip-pull: tau, the steps from one pull to the next, must be 1 or more, not {tau}")
        self.every = tau
        self.momentum = momentum_option(self.name, momentum)
