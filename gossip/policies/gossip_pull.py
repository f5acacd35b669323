"""Gossiping SGD, pulling: every tau steps, from somebody at random, and nobody waits.

Jin, Yuan, Iandola, Keutzer, "How to scale distributed deep learning?", 2016, arXiv:1611.04581: x_i becomes the mean of
x_i and x_j for a random j, which itself stays as it is, so that the average over all peers jumps with every pull. Here
j gives mass away: the fraction of its own that the schedule names, half as a rule. z_i moves towards z_j by what came
relative to what was there (a third, of equal weights), z_j stays, and the average over all mass stays too. Somebody who
is pulled from often holds less, and so counts less, until it pulls itself.

A pull that is lost is not repeated; the mass that answers one is held by its sender until it is acknowledged, like any.
Use it to compare with the paper; a push needs one message where a pull needs two.
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
            raise SettingsError(f"gossip-pull: tau is the number of steps from one pull to the next, not {tau}")
        self.every = tau
        self.momentum = momentum_option(self.name, momentum)
