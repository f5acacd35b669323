"""Decentralized parallel SGD: symmetric doubly stochastic averaging with all neighbours of the turn.

Lian, Zhang, Zhang, Hsieh, Zhang, Liu, "Can Decentralized Algorithms Outperform Centralized Algorithms?", 2017,
arXiv:1705.09056. As sgp, on a schedule whose fractions are the same both ways: then everybody receives as much as it
sends, all weights stay 1, and z is a plain weighted mean of the neighbours' parameters. Should a parcel be
late or a peer die, the weights keep the average right, which the original has no answer to.

The order is that of sgp too: a step, then the mean, so that the step is mixed with the rest. In the paper a peer's own
step is added to the mean of what all had before it, and both can go on at the same time.

Use it to compare with the method of the paper, or where an algorithm on top wants weights of 1.
"""

from __future__ import annotations

from gossip.policies.policy import Policy, momentum_option, require_symmetric
from topologies import Schedule

__all__ = ["DPSGD"]


class DPSGD(Policy):
    """Symmetric averaging, waiting for all neighbours of the turn."""

    name = "dpsgd"
    lag = 0
    default_topology = "base"

    def __init__(self, *, momentum: str = "own") -> None:
        self.momentum = momentum_option(self.name, momentum)

    def check(self, schedule: Schedule) -> None:
        """Refuse a schedule that is not symmetric."""
        require_symmetric(self.name, schedule)
