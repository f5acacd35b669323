"""Slow momentum: local steps, PushSum after every h-th of them, then a step of an outer momentum.

Wang, Tantia, Ballas, Rabbat, "SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum", 2019,
arXiv:1910.00643; with averaging over all peers and alpha = 1 it is BMUF (Chen, Huo 2016). With z0 the value after the
last outer step and z the value after the exchange:

    u <- beta u + (z0 - z)        z <- z0 - alpha u

In the paper the difference is divided by the learning rate in the first formula and multiplied by it in the second. If
the rate does not change in between, the result is the same. Here the rate stays in the difference, so that any
optimizer works. With beta = 0 and alpha = 1 it is `local`. The exchange is that of sgp: it waits for the turn's
parcels, so that the outer step includes them. A late parcel is merged when it comes, and the next outer step includes
it. The outer step moves z and gives no mass away, like a step of the optimizer, so it cannot lose mass.

Differences from the paper: in the paper all peers are averaged exactly before each outer step, and over SGP there is
also a push in every step; a variant without the average was about as good. Here there is only a PushSum exchange, after
every h-th step. In the paper SGD's own momentum is set to 0 at each outer step; here it is kept. The paper's tables
have alpha = 1, a tuned beta, usually 0.4 to 0.8, and an h of 12 or 48.

Why beta is 0.3 here: the outer momentum multiplies the effective rate by 1 / (1 - beta), on top of the optimizer's own
momentum, and it preserves differences between replicas. On any topology an exchange removes at most 1 - sqrt(beta) of
them (docs/results/study.md, outer momentum). With beta = 0.7 and a rate that suits the other algorithms, training ended
far below `local`; with 0.3 at its level or above.

With ``differences=true`` the exchange is that of `choco`, on a fixed symmetric graph, and any codec works.

Use it instead of `local`: it has the same traffic.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Outer, Policy

__all__ = ["SlowMo"]


class SlowMo(Policy):
    """PushSum after every ``h`` local steps, then outer momentum ``beta`` with the outer rate ``alpha``."""

    name = "slowmo"
    may_differ = True
    lag = 0

    def __init__(self, *, h: int = 8, beta: float = 0.3, alpha: float = 1.0, differences: bool = False) -> None:
        if h < 1:
            raise SettingsError(f"slowmo: h, the steps from one push to the next, must be 1 or more, not {h}")
        self.every = h
        self.outer = Outer.checked(self.name, {"beta": beta, "alpha": alpha})
        self.differences = differences
