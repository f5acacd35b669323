"""Outer momentum: a step of a slow optimizer after each exchange. slowmo and noloco, which tell the derivation.

With z0 the value after the last outer step and z the one that was just mixed:

    u <- decay u + (z0 - z)        z <- z0 - rate u

A newcomer begins with u = 0 and z0 = the z that it was given. It could be given a donor's u as well, but that
would double what it has to fetch before it may train, and u belongs to where the donor's z0 was, which nobody
can tell it at a moment that fits the pieces of z. After 1 / (1 - decay) exchanges there is no difference.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch

from gossip.policies.policy import Outer
from peers.methods.method import Method
from peers.model.replica import Replica
from peers.model.trained import Trained, like

__all__ = ["OuterMomentum"]


class OuterMomentum(Method):
    """The outer step of one replica. Memory: two more vectors of the size of the model."""

    def __init__(self, outer: Outer, replica: Replica, optimizer: torch.optim.Optimizer) -> None:
        self._outer = outer
        self._values = replica.vectors
        self._trained = Trained(replica, optimizer)
        self._last = [one.clone() for one in self._values]
        self._momentum = like(self._values)

    def start(self) -> None:
        """Take the values for those after the last outer step."""
        if not self.restored:
            torch._foreach_copy_(self._last, self._values)

    @torch.no_grad()
    def exchanged(self, shards: Container[int]) -> None:
        """Take an outer step with what the exchange brought."""
        for segment in self._trained.segments(shards):
            z, last, momentum = (segment.of(one) for one in (self._values, self._last, self._momentum))
            momentum.mul_(self._outer.decay).add_(last.to(momentum.dtype) - z)
            z.copy_(last.to(momentum.dtype) - self._outer.rate * momentum)
            last.copy_(z)

    def state_dict(self) -> dict[str, Any]:
        """Return the momentum, and what the next difference is to."""
        return {"last": self._last, "momentum": self._momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        torch._foreach_copy_(self._last, state["last"])
        torch._foreach_copy_(self._momentum, state["momentum"])
