"""Local steps, and gossip only after every h-th of them.

Local SGD with PushSum instead of all-reduce: Stich, "Local SGD Converges Fast and Communicates Little", 2018,
arXiv:1805.09767. Between two exchanges a peer trains alone. Otherwise it is sgp (tau = 0) or osgp (tau > 0) with one
turn in h steps.

Use it when a link carries much less than a model per step. Pushing a share of the shards in every step costs the same
bytes and keeps replicas closer together; local steps need fewer messages, and peers wait less often.
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
            raise SettingsError(f"local: h, the steps from one push to the next, must be 1 or more, not {h}")
        if tau < 0:
            raise SettingsError(f"local: tau, the turns that a parcel may be late, must be 0 or more, not {tau}")
        self.every = h
        self.lag = tau
        self.momentum = momentum_option(self.name, momentum)
        self.differences = differences
