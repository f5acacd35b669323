"""Overlapped stochastic gradient push: communication overlaps with the next tau steps.

Assran et al. 2018, arXiv:1811.10792 (overlap SGP). Like sgp, but after pushing turn t a peer waits only for the parcels
of turn t - tau. With tau = 0 it is sgp. The first ``warmup`` steps are sgp too: a stale gradient does most harm while
the model is new and the learning rate high (decision 30).

Where peers are nearly in step it waits for the parcels of turn t as well, for a part ``wait`` of the time at most
(`gossip.exchange.allowance`): gradients are not stale then. ``wait=0`` is the paper's method.

Use it when communication takes up to tau step times, or peers are not equally fast: nobody waits for long, but
parameters may be up to tau steps old when they arrive.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Policy, momentum_option, variance_option, warmup_option

__all__ = ["OSGP"]


class OSGP(Policy):
    """PushSum, waiting only for parcels that are more than ``tau`` turns late."""

    name = "osgp"

    def __init__(
        self, *, tau: int = 1, wait: float = 0.35, warmup: int = 0, momentum: str = "auto", variance: str = "swarm"
    ) -> None:
        if tau < 0:
            raise SettingsError(f"osgp: tau, the turns that a parcel may be late, must be 0 or more, not {tau}")
        if not 0 <= wait <= 1:
            raise SettingsError(
                f"osgp: wait, the part of the time for which a neighbour is waited for, must be 0 to 1, not {wait}"
            )
        self.lag = tau
        self.wait = wait
        self.warmup = warmup_option(self.name, warmup)
        self.momentum = momentum_option(self.name, momentum, in_step=True)
        self.variance = variance_option(self.name, variance)
