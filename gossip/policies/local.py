"""Local steps, and gossip only with every h-th of them.

Local SGD with push-sum in the place of the all-reduce: Stich, "Local SGD Converges Fast and Communicates Little", 2018,
arXiv:1805.09767. Between two exchanges a peer trains alone. As sgp (tau = 0) or osgp (tau > 0) otherwise, but
a turn comes only once in h steps.

Use it when a link carries much less than a model per step. Pushing a share of the shards at every step costs the same
bytes and keeps replicas closer together; this has fewer messages, and fewer moments at which anybody waits.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Policy, momentum_option

__all__ = ["Local"]


class Local(Policy):
    """PushSum after every ``h`` local steps, waiting for parcels more than ``tau`` turns late."""

    name = "local"
    may_differ = True

    def __init__(self, *, h: int = 8, tau: int = 1, momentum: str = "own", differences: bool = False) -> None:
        if h < 1:
            raise SettingsError(f"local: h is the number of steps from one push to the next, 1 or more, not {h}")
        if tau < 0:
            raise SettingsError(f"local: tau is how many turns late a parcel may be, 0 or more, not {tau}")
        self.every = h
        self.lag = tau
        self.momentum = momentum_option(self.name, momentum)
        self.differences = differences
