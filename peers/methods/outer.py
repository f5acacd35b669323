"""Outer momentum, a step of a slow optimizer after each exchange: for slowmo and noloco, where the derivation is.

With z0 the value after the last outer step and z the value after the exchange:

    u <- decay u + (z0 - z)        z <- z0 - rate u

A newcomer begins with u = 0 and z0 = the z that it got. It could get a donor's u as well, but that would double the
bytes that it has to fetch before it may train. Also, u belongs to the donor's z0, which no peer can send at a moment
that matches the pieces of z. After 1 / (1 - decay) exchanges there is no difference.
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
        """Treat the present values as those after an outer step."""
        if not self.restored:
            torch._foreach_copy_(self._last, self._values)

    @torch.no_grad()
    def exchanged(self, shards: Container[int]) -> None:
        """Take an outer step with the values after the exchange."""
        for segment in self._trained.segments(shards):
            z, last, momentum = (segment.of(one) for one in (self._values, self._last, self._momentum))
            momentum.mul_(self._outer.decay).add_(last.to(momentum.dtype) - z)
            z.copy_(last.to(momentum.dtype) - self._outer.rate * momentum)
            last.copy_(z)

    def state_dict(self) -> dict[str, Any]:
        """Return the momentum, and the values after the last outer step."""
        return {"last": self._last, "momentum": self._momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        torch._foreach_copy_(self._last, state["last"])
        torch._foreach_copy_(self._momentum, state["momentum"])
