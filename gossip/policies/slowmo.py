"""Slow momentum: local steps, push-sum with every h-th of them, then a step of an outer momentum.

Wang, Tantia, Ballas, Rabbat, "SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum", 2019,
arXiv:1910.00643; with averaging over all and alpha = 1 it is BMUF (Chen, Huo 2016). With z0 the value after the last
outer step and z the one that was just mixed:

    u <- beta u + (z0 - z)        z <- z0 - alpha u

In the paper the difference is divided by the learning rate in the first formula and multiplied by it in the second.
Where the rate does not change in between that is the same; here it stays in the difference, so that any optimizer will
do. With beta = 0 and alpha = 1 it is `local`. The exchange is that of sgp: it waits for the turn's parcels, so that
the outer step sees what they bring. A parcel that is late all the same is merged whenever it comes, and the next outer
step sees that. The outer step moves z and gives no mass away, as a step of the optimizer: it cannot lose any.

What differs from the paper. There all are averaged exactly before each outer step, and over SGP there is a push with
every step as well; a variant without the average was about as good. Here a push-sum exchange is all there is, and only
with every h-th step. And there SGD's own momentum is set to 0 at each outer step; here it stays. The paper's tables
have alpha = 1, a beta that is tuned, 0.4 to 0.8 as a rule, and an h of 12 or 48.

Why beta is 0.3 here. The outer momentum makes the rate 1 / (1 - beta) times as large, on top of the optimizer's own,
and it keeps differences between replicas alive: whatever the topology, they lose no more than 1 - sqrt(beta) of
themselves with an exchange (docs/results/study.md, outer momentum). With 0.7 and a rate that suits everybody else,
training ended far below `local`; with 0.3 at its level or above.

With ``differences=true`` the exchange is that of `choco`, on a fixed symmetric graph, and any codec will do.

Use it in the place of `local`: it has the same traffic.
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
            raise SettingsError(f"slowmo: h is the number of steps from one push to the next, 1 or more, not {h}")
        self.every = h
        self.outer = Outer.checked(self.name, {"beta": beta, "alpha": alpha})
        self.differences = differences
