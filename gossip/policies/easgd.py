"""Elastic averaging without a server: neighbours move towards each other by a fraction alpha.

Zhang, Choromanska, LeCun, "Deep learning with Elastic Averaging SGD", 2015, arXiv:1412.6651: each worker and the centre
move towards each other, x_i by alpha (c - x_i) and c by alpha (x_i - c). Two peers that swap a fraction alpha of their
mass do the same: with equal weights z_i becomes (1 - alpha) z_i + alpha z_j, and z_j the reverse. So every link is
elastic, there is no server, and replicas may differ more than with halves.

On a star this is the original method. The hub is the centre. Leaves begin, each at its own pace, and all leaves that
the hub answers at one step boundary get alpha of the mass that it held before the first answer. With equal weights that
is

    c <- c + alpha sum_i (x_i - c)        x_i <- x_i - alpha (x_i - c)

The hub is a peer like the others, so it trains as well. No peer waits, so a late leaf is in the sum of a later step
boundary. If the floor of its weight does not leave alpha for all leaves that ask, the hub reduces all shares equally.

Use it with a small alpha where replicas should explore independently; adpsgd is the same with alpha = 1/2.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Policy, momentum_option, planned_edges
from topologies import Schedule

__all__ = ["EASGD"]


class EASGD(Policy):
    """Pairwise averaging by ``alpha`` instead of one half, every ``tau`` steps, asynchronous."""

    name = "easgd"
    pairwise = True

    def __init__(self, *, alpha: float = 0.25, tau: int = 1, momentum: str = "own") -> None:
        if not 0 < alpha <= 0.5:
            raise SettingsError(
                f"easgd: alpha, the part of its mass that a peer swaps, must be above 0 and at most 0.5, not {alpha}"
            )
        if tau < 1:
            raise SettingsError(f"easgd: tau, the steps from one exchange to the next, must be 1 or more, not {tau}")
        self.fraction = alpha
        self.every = tau
        self.momentum = momentum_option(self.name, momentum)

    def check(self, schedule: Schedule) -> None:
        """Raise a `SettingsError` if a rank has more neighbours in a turn than alpha allows."""
        alpha = self.fraction or 0.0
        for step, edges in planned_edges(schedule):
            for rank, neighbours in edges.items():
                degree = len(neighbours)
                if degree * alpha >= 1:
                    raise SettingsError(
                        f"easgd: rank {rank} has {degree} neighbours in step {step} of {schedule.name} and would give "
                        f"alpha = {alpha:g} of its mass to each; use alpha below {1 / degree:.3g}, or a topology "
                        "with fewer neighbours per step"
                    )
