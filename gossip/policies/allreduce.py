"""Synchronous gradient averaging: all-reduce over the same transport, as a reference for gossip.

In each step every peer computes a gradient g_i on its own batch, and all peers get the same mean, bit for bit,

    g = (g_1 + ... + g_n) / n        and every optimizer makes the same move with it,

so n replicas that start equal stay equal: this is SGD with a batch n times as large. No parameters are pushed, and no
mass moves. The sum is computed by a ring (Patarasuk and Yuan 2009), by recursive halving and doubling (Thakur,
Rabenseifner, Gropp 2005) or by a tree, whichever is cheapest for n and the size (`gossip.collective`). Goyal et al.
2017, arXiv:1706.02677, describe how to set the learning rate; Chen et al. 2016, arXiv:1604.00981, argue for synchronous
steps.

With a codec (`gossip.collective.coded`) each peer, and the owner of each part, encodes gradients with error feedback.
``correction`` is the momentum correction of deep gradient compression (Lin et al. 2018, arXiv:1712.01887) for sparse
codecs: each peer applies momentum to its gradients before the codec leaves values out, so the optimizer must not have
momentum.

All peers wait for the slowest, in every step. When a peer dies, the others form a new group and finish the round, where
other implementations of all-reduce stop. Until the death is detected, which takes some seconds, they wait.

Use it where links are fast and peers equally fast, where replicas must be bit-identical, or as a reference.
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
            raise SettingsError(f"allreduce: plan must be one of {', '.join(_PLANS)}, not {plan!r:.40}")
        if not 0 <= correction < 1:
            raise SettingsError(f"allreduce: correction must be a momentum from 0 to below 1, not {correction}")
        self.plan = plan
        self.correction = correction

    def exchanges(self, step: int) -> bool:  # noqa: ARG002
        """Return False: no mass moves."""
        return False
