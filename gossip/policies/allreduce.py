"""Synchronous gradient averaging: all-reduce over our own transport, the contrast to gossip.

Per step each peer computes a gradient g_i on its own batch, all get the mean of them, bit by bit the same,

    g = (g_1 + ... + g_n) / n        and every optimizer makes the same move with it,

so n replicas that start equal stay equal: it is SGD with a batch n times as large. No parameters are pushed, and there
is no mass but the one that each peer starts with. The sum goes by a ring (Patarasuk and Yuan 2009), recursive halving
and doubling (Thakur, Rabenseifner, Gropp 2005) or a tree, whichever is cheapest for n and the size
(`gossip.collective`). Goyal et al. 2017, arXiv:1706.02677, has what to do about the learning rate; Chen et al. 2016,
arXiv:1604.00981, why synchronous.

With a codec (`gossip.collective.coded`) gradients are sent as it writes them, with error feedback, by each peer and by
the owner of each part. ``correction`` is the momentum correction of deep gradient compression (Lin et al. 2018,
arXiv:1712.01887) for sparse codecs: momentum is applied to each peer's gradients before anything is left out, so the
optimizer is to have none.

Everybody waits for the slowest, in every step. When a peer dies the others notice, form a new group and go on with the
round, where other all-reduces stop; until the death is told, some seconds, they wait.

Use it where links are fast and peers equal, where replicas must be the same bits, or to compare with.
"""

from __future__ import annotations

from gossip.errors import SettingsError
from gossip.policies.policy import Policy

__all__ = ["AllReduce"]

_PLANS = ("auto", "halving", "ring", "tree")


class AllReduce(Policy):
    """Average the gradients of all peers before every step; all wait for the slowest."""

    name = "allreduce"
    collective = "reduction"

    def __init__(self, *, plan: str = "auto", correction: float = 0.0) -> None:
        if plan not in _PLANS:
            raise SettingsError(f"allreduce: plan is one of {', '.join(_PLANS)}, not {plan!r:.40}")
        if not 0 <= correction < 1:
            raise SettingsError(f"allreduce: correction is a momentum, from 0 to below 1, not {correction}")
        self.plan = plan
        self.correction = correction

    def exchanges(self, step: int) -> bool:  # noqa: ARG002
        """Return False: no mass moves."""
        return False
