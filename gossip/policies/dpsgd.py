"""Decentralized parallel SGD: symmetric doubly stochastic averaging with all neighbours of the turn.

Lian, Zhang, Zhang, Hsieh, Zhang, Liu, "Can Decentralized Algorithms Outperform Centralized Algorithms?", 2017,
arXiv:1705.09056. It is sgp on a schedule whose fractions are equal in both directions. Then every peer receives as much
as it sends, all weights stay 1, and z is a plain weighted mean of the neighbours' parameters. If a parcel is late or a
peer dies, the weights keep the average correct; the original has no remedy for that.

The order is also that of sgp: first a step, then the mean, so that the step is mixed as well. In the paper a peer's own
step is added to the mean of the parameters before the steps, and both can be computed at the same time.

With ``rounds=R`` a step ends in R averages, one after the other, as with sgp.

Use it to compare with the method of the paper, or if an algorithm on top needs weights of 1.
"""

from __future__ import annotations

from gossip.policies.policy import Policy, momentum_option, require_symmetric, rounds_option, variance_option
from topologies import Schedule

__all__ = ["DPSGD"]


class DPSGD(Policy):
    """Symmetric averaging, waiting for all neighbours of the turn."""

    name = "dpsgd"
    lag = 0
    default_topology = "base"

    def __init__(self, *, rounds: int = 1, momentum: str = "auto", variance: str = "swarm") -> None:
        self.rounds = rounds_option(self.name, rounds)
        self.momentum = momentum_option(self.name, momentum, in_step=True)
        self.variance = variance_option(self.name, variance)

    def check(self, schedule: Schedule) -> None:
        """Raise a `SettingsError` unless the schedule is symmetric."""
        require_symmetric(self.name, schedule)
