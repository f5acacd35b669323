"""Elastic averaging without a server: neighbours pull each other together, by a fraction alpha.

Zhang, Choromanska, LeCun, "Deep learning with Elastic Averaging SGD", 2015, arXiv:1412.6651: each worker and the centre
are drawn to each other, x_i by alpha (c - x_i) and c by alpha (x_i - c). Two peers that swap a fraction alpha of their
mass do just that: with equal weights z_i becomes (1 - alpha) z_i + alpha z_j, and z_j the reverse. So every link is
elastic, there is no server, and replicas may stray further from each other than by half for half.

On a star it is the classic one. The hub is the centre: leaves begin, each at its own pace, and all whom the hub answers
at one boundary get alpha of what it held before the first of them. With equal weights that is

    c <- c + alpha sum_i (x_i - c)        x_i <- x_i - alpha (x_i - c)

Since it is a peer like others, the hub trains as well; since nobody waits, a leaf that is late is in the sum of a later
boundary. If the floor under its weight does not leave alpha for all who ask, the hub gives each as much less.

Use it where replicas should explore on their own, with a small alpha; adpsgd is the same with alpha = 1/2.
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
            raise SettingsError(f"easgd: alpha is the part of its mass that a peer swaps, up to 0.5, not {alpha}")
        if tau < 1:
            raise SettingsError(f"easgd: tau is the number of steps from one exchange to the next, not {tau}")
        self.fraction = alpha
        self.every = tau
        self.momentum = momentum_option(self.name, momentum)

    def check(self, schedule: Schedule) -> None:
        """Refuse more neighbours at a time than there are fractions for."""
        alpha = self.fraction or 0.0
        for step, edges in planned_edges(schedule):
            for rank, neighbours in edges.items():
                degree = len(neighbours)
                if degree * alpha >= 1:
                    raise SettingsError(
                        f"easgd: rank {rank} has {degree} neighbours in step {step} of {schedule.name} and would give "
                        f"alpha = {alpha:g} of its mass to each; say alpha below {1 / degree:.3g}, or use a topology "
                        "with fewer neighbours at a time"
                    )
