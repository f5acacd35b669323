"""Local steps, and an outer momentum on the mean of a pair, without any all-reduce.

Kolehmainen, Blagoev, Donaghy, Ersoy, Nies, "NoLoCo: No-all-reduce Low Communication Training Method for Large Models",
2025, arXiv:2506.10911. Each peer has slow weights phi and trains fast weights theta for h steps. Then it exchanges with
one partner, a different one each time. With theta' the mean of the two:

    m <- mu m + eta (theta' - phi)        phi <- phi + m        theta <- phi

The term eta (theta' - phi) combines both terms of the paper: eta times the pair's mean of theta - phi, their progress,
and eta times (the pair's mean of phi) - phi, which keeps their slow weights together. The paper has separate factors
for the two, beta and gamma (and alpha for mu). Its code uses one factor for both, as here. The defaults of mu and eta
are those of its experiments, with h = 50. Its random routes through pipeline stages are not implemented. With phi = z0
and m = -alpha u this is the outer step of slowmo, with mu for beta and eta for alpha, so the code is the same
(`peers.methods.outer`).

The exchange: partners push halves to each other and wait for the other half. With equal weights both then hold exactly
the mean. No other peer takes part, and no other peer is waited for. This needs a schedule of pairs, and any other
schedule is refused. (If each push were answered as well, as adpsgd does on one-way edges, both would hold a quarter of
their own values and three quarters of the other's.) A late answer is merged when it comes: the outer step uses what has
arrived.

Use it with random-matching and a large h where links are slow, so that a peer can afford to wait for one partner only.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Outer, Policy, require_pairs
from topologies import Schedule

__all__ = ["NoLoCo"]


class NoLoCo(Policy):
    """The mean of a pair after every ``h`` local steps, then outer momentum ``mu`` with the outer rate ``eta``."""

    name = "noloco"
    lag = 0
    default_topology = "random-matching"

    def __init__(self, *, h: int = 8, mu: float = 0.5, eta: float = 0.7) -> None:
        if h < 1:
            raise SettingsError(f"noloco: h, the steps from one exchange to the next, must be 1 or more, not {h}")
        self.every = h
        self.outer = Outer.checked(self.name, {"mu": mu, "eta": eta})

    def check(self, schedule: Schedule) -> None:
        """Raise a `SettingsError` unless the schedule consists of pairs."""
        require_pairs(self.name, schedule)
