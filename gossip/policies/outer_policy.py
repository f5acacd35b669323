"""Local steps, then an outer step of Nesterov momentum on the mean of what all peers have moved. No coordinator.

DiLoCo: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023, arXiv:2311.08105.
With z0 the values after the last outer step, the same at all peers, and z those after ``h`` local steps of any
optimizer:

    s = mean over all peers of (z0 - z)        u <- mu u + s        z0 <- z0 - eta (s + mu u)        z <- z0 + (z' - z)

where z' - z is what the peer has moved while the mean travelled: nothing, if it has waited.

The mean is that of `allreduce` (`gossip.collective`), so there is no server. Deaths, leaves and joins in the middle of
a round are its business: the round begins again among those who are there, and all peers that take part end with the
same bits. So z0 does not drift apart, and what is sent of it is a difference. Any codec works, with error feedback at
the sender and at the owner of each part: with q = C(z0 - z + e) and e <- z0 - z + e - q at each peer,

    s = C(mean of q + e')        e' <- mean of q + e' - s

The bytes per step are 2 (n-1)/n encoded models over h: with int2, 12.8 h times fewer than a ring in float32.

**Nobody waits for h steps of a slow peer.** The first peer that has made h steps, in a time t, begins the average. A
slower peer takes part when (1 + slack) t have passed, after its present step, with as many steps as it has made. So a
slow peer makes fewer steps in a round, and the others wait for slack t and one step of it at most. With slack = 0 peers
of equal speed would often miss their last steps, because none are equal to the millisecond.

**Nobody waits for long.** A peer stands still for an average for ``wait`` times as long as its own steps took at most.
Then it goes on, and takes the outer step when the mean is there; so a peer that has died stops nobody until it is
declared dead. Its moves meanwhile are in the next average. ``tau`` bounds them: after this number of steps it waits
after all. A step from the mean is worth more than one from where a peer has come to alone, so to wait a little is the
default, and ``wait=0`` is for links on which an average takes as long as many steps (decision 49).

With mu = 0 and eta = 1 it is federated averaging, or local SGD with an exact mean. With mu above 0 and the mean over
a pair instead of over all it would be noloco, and with the mean of a PushSum exchange slowmo; both have the plain form
of the momentum. The defaults of mu and eta are those of trials on Fashion-MNIST (decision 40).

Use it where links are so slow that even a fraction of a model per step is too much.
"""

from __future__ import annotations

import math

from gossip.errors import SettingsError
from gossip.policies.policy import Outer, Policy

__all__ = ["OuterPolicy"]


class OuterPolicy(Policy):
    """The mean of all peers after ``h`` local steps, then outer Nesterov momentum ``mu`` with the rate ``eta``."""

    name = "outer"
    collective = "reduction"

    def __init__(
        self,
        *,
        h: int = 8,
        mu: float = 0.8,
        eta: float = 0.7,
        slack: float = 0.5,
        wait: float = 1.0,
        tau: float = math.inf,
    ) -> None:
        if h < 1:
            raise SettingsError(f"outer: h, the steps from one average to the next, must be 1 or more, not {h}")
        self.every = h
        if not slack >= 0:
            raise SettingsError(
                f"outer: slack, how much longer than its first peer a round may take, must be 0 or more, not {slack}"
            )
        self.slack = slack
        if not wait >= 0:
            raise SettingsError(
                f"outer: wait, how long a peer stands still for an average, must be 0 or more, not {wait}"
            )
        self.stands = wait
        if not tau >= 0:
            raise SettingsError(
                f"outer: tau, how many steps a peer makes while an average travels, must be 0 or more, not {tau}"
            )
        self.late = tau
        self.outer = Outer.checked(self.name, {"mu": mu, "eta": eta})

    def exchanges(self, step: int) -> bool:  # noqa: ARG002
        """Return False: no mass moves."""
        return False
