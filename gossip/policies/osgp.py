"""Overlapped stochastic gradient push: communication hides behind the next tau steps.

Assran et al. 2018, arXiv:1811.10792 (overlap SGP). As sgp, but after pushing turn t only the parcels of turn
t - tau have to be there. With tau = 0 it is sgp, and so are the first ``warmup`` steps: a gradient that is old when it
counts does most harm where the model is fresh and the rate high (decision 30).

Use it when communication takes up to tau step times: nobody waits, at the price of parameters that are up to
tau steps old when they arrive.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Policy, momentum_option, warmup_option

__all__ = ["OSGP"]


class OSGP(Policy):
    """PushSum, waiting only for parcels that are more than ``tau`` turns late."""

    name = "osgp"

    def __init__(self, *, tau: int = 1, warmup: int = 0, momentum: str = "own") -> None:
        if tau < 0:
            raise SettingsError(f"osgp: tau is how many turns late a parcel may be, 0 or more, not {tau}")
        self.lag = tau
        self.warmup = warmup_option(self.name, warmup)
        self.momentum = momentum_option(self.name, momentum)
