"""Overlapped stochastic gradient push: communication overlaps with the next tau steps.

Assran et al. 2018, arXiv:1811.10792 (overlap SGP). Like sgp, but after pushing turn t a peer waits only for the parcels
of turn t - tau. With tau = 0 it is sgp. The first ``warmup`` steps are sgp too: a stale gradient does most harm while
the model is new and the learning rate high (decision 30).

Where peers are nearly in step it waits for the parcels of turn t as well, for a part ``wait`` of the time at most
(`gossip.exchange.allowance`): gradients are not stale then. ``auto`` is 0.1, and 0.35 with adaptive optimizers, whose
best rate is too high for stale gradients (decision 48). ``wait=0`` is the paper's method.

Use it when communication takes up to tau step times, or peers are not equally fast: nobody waits for long, but
parameters may be up to tau steps old when they arrive.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Policy, momentum_option, variance_option, warmup_option

__all__ = ["OSGP"]

#: The part of the time for which ``auto`` waits: with any optimizer, and with one that is adaptive.
_WAIT, _ADAPTIVE_WAIT = 0.1, 0.35


class OSGP(Policy):
    """PushSum, waiting only for parcels that are more than ``tau`` turns late."""

    name = "osgp"

    def __init__(
        self,
        *,
        tau: int = 1,
        wait: float | str = "auto",
        warmup: int = 0,
        momentum: str = "auto",
        variance: str = "swarm",
    ) -> None:
        if tau < 0:
            raise SettingsError(f"osgp: tau, the turns that a parcel may be late, must be 0 or more, not {tau}")
        self._is_free = wait == "auto"
        part = _WAIT if self._is_free else wait
        if isinstance(part, str) or not 0 <= part <= 1:
            raise SettingsError(
                "osgp: wait, the part of the time for which a neighbour is waited for, must be auto or 0 to 1, "
                f"not {wait}"
            )
        self.lag = tau
        self.wait = part
        self.warmup = warmup_option(self.name, warmup)
        self.momentum = momentum_option(self.name, momentum, in_step=True)
        self.variance = variance_option(self.name, variance)

    def for_adaptive(self) -> Policy:
        """Return the policy for an adaptive optimizer: it waits for longer, unless the user said for how long."""
        if not self._is_free:
            return self
        return OSGP(
            tau=self.lag or 0,
            wait=_ADAPTIVE_WAIT,
            warmup=self.warmup,
            momentum=self.momentum,
            variance=self.variance,
        )
