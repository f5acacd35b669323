"""Gossiping SGD, pushing: every tau steps, to somebody at random, and nobody waits.

Jin, Yuan, Iandola, Keutzer, "How to scale distributed deep learning?", 2016, arXiv:1611.04581. There a peer sends its
parameters to a random peer, which averages them with its own whenever they come. The average over all peers then drifts
by who is sent to how often. Here what is sent is mass, half of it, and what arrives is weighed by the weight that came
with it: the same traffic, and the average stays.

Use it with a random topology such as epidemic or random-matching, where peers are unequal and links few; tau saves
traffic at the price of replicas further apart.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Policy, momentum_option

__all__ = ["GossipPush"]


class GossipPush(Policy):
    """Push half every ``tau`` steps, asynchronous."""

    name = "gossip-push"

    def __init__(self, *, tau: int = 1, momentum: str = "own") -> None:
        if tau < 1:
            raise SettingsError(f"gossip-push: tau is the number of steps from one push to the next, not {tau}")
        self.every = tau
        self.momentum = momentum_option(self.name, momentum)
