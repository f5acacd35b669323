"""Local steps, and an outer momentum on the mean of a pair: no all-reduce, not even a slow one.

Kolehmainen, Blagoev, Donaghy, Ersoy, Nies, "NoLoCo: No-all-reduce Low Communication Training Method for Large Models",
2025, arXiv:2506.10911. Each peer has slow weights phi and trains fast ones, theta, for h steps. Then it meets one
partner, another one each time. With theta' the mean of the two:

    m <- mu m + eta (theta' - phi)        phi <- phi + m        theta <- phi

The pull eta (theta' - phi) is both terms of the paper in one: eta times the pair's mean of theta - phi, how far
they came, and eta times (the pair's mean of phi) - phi, which keeps their slow weights together. The paper has factors
of their own for the two, beta and gamma (and alpha for mu); its code takes one for both, as here. The defaults of mu
and eta are those of its experiments, whose h is 50. Its random routes through pipeline stages are not part of this.
With phi = z0 and m = -alpha u it is the outer step of slowmo, mu for beta and eta for alpha, so the code is the same
(`peers.methods.outer`).

The exchange. Partners push halves at each other and wait for the other half: with equal weights both then hold exactly
the mean. Nobody else is involved and nobody else is waited for. That takes a schedule that makes pairs, and any other
one is refused. (Were each push answered as well, as adpsgd does on one-way edges, both would hold a quarter of their
own and three quarters of the other's.) An answer that is late is merged whenever it comes: the outer step is taken
on what is there.

Use it with random-matching and a large h where links are slow and waiting for one partner is all that can be afforded.
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
            raise SettingsError(f"noloco: h is the number of steps from one exchange to the next, 1 or more, not {h}")
        self.every = h
        self.outer = Outer.checked(self.name, {"mu": mu, "eta": eta})

    def check(self, schedule: Schedule) -> None:
        """Refuse a schedule that does not make pairs."""
        require_pairs(self.name, schedule)
