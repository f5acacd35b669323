"""Gossiping SGD, pushing: every tau steps, to a random peer, without waiting.

Jin, Yuan, Iandola, Keutzer, "How to scale distributed deep learning?", 2016, arXiv:1611.04581. In the paper a peer
sends its parameters to a random peer, which averages them with its own when they arrive. The average over all peers
then drifts, because some peers receive more often than others. Here a peer sends half of its mass, and arriving values
count by the weight that comes with them: the traffic is the same, and the average does not change.

Use it with a random topology such as epidemic or random-matching, where peers differ in speed and links are few. A
larger tau saves traffic, but replicas differ more.
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
            raise SettingsError(f"gossip-push: tau, the steps from one push to the next, must be 1 or more, not {tau}")
        self.every = tau
        self.momentum = momentum_option(self.name, momentum)
