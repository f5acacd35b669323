"""The outer step of one replica on the mean of what all peers have moved: for outer, where the derivation is.

With z0 the values after the last outer step and s the mean over all peers of z0 - z:

    u <- decay u + s        z0 <- z0 - rate (s + decay u)        z <- z0

z0 and u are the same bits at all peers that take part. Buffers, such as batch norm's statistics, take no outer step:
they become the mean.
"""

from __future__ import annotations

from typing import Any

import torch
import xxhash

from gossip.policies.policy import Outer
from peers.methods.method import Method
from peers.model.gradients import Gradients

__all__ = ["CommonMomentum", "OuterAverage"]


class OuterAverage(Method):
    """Memory: z0, u, and the vector that is averaged; each has the size of the model."""

    def __init__(self, outer: Outer, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._outer = outer
        #: What is averaged.
        self.vector = Gradients(model, optimizer)
        self._values: list[torch.Tensor] = list(self.vector.parameters)
        self._last = [one.detach().clone() for one in self._values]
        #: The number of outer steps.
        self.rounds = 0
        #: The number of steps since the last one.
        self.alone = 0
        self._momentum = [torch.zeros_like(one, dtype=wide(one)) for one in self._last]

    @torch.no_grad()
    def start(self) -> None:
        """Treat the present values as those after an outer step."""
        if not self.restored:
            torch._foreach_copy_(self._last, self._values)

    @torch.no_grad()
    def rewind(self) -> list[torch.Tensor]:
        """Go back to z0; return the values that were there."""
        values = [one.detach().clone() for one in self._values]
        torch._foreach_copy_(self._values, self._last)
        return values

    @torch.no_grad()
    def go_on(self, values: list[torch.Tensor]) -> None:
        """Undo `rewind`."""
        torch._foreach_copy_(self._values, values)

    @torch.no_grad()
    def adopt(self) -> None:
        """Treat the present values, which are another peer's z0, as z0."""
        torch._foreach_copy_(self._last, self._values)

    def step(self) -> None:
        """Take an outer step with the mean, which the vector holds."""
        self.rounds += 1
        self.vector.scatter_buffers()
        with torch.no_grad():
            for z, last, momentum, mean in zip(
                self._values, self._last, self._momentum, self.vector.moves, strict=True
            ):
                moved = mean.to(momentum)
                momentum.mul_(self._outer.decay).add_(moved)
                last.copy_(last.to(momentum.dtype) - self._outer.rate * (moved + self._outer.decay * momentum))
                z.copy_(last)

    def gather(self) -> None:
        """Fill the vector with what this peer has moved since z0, and go back to z0."""
        self.vector.gather_moves(self._last)
        self.rewind()

    def seal(self) -> int:
        """Return a hash of what all peers have in common, for `gossip.events.Synchronize`."""
        digest = xxhash.xxh3_64()
        for one in (*self._last, *self._momentum):
            digest.update(one.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
        return digest.intdigest() >> 11 or 1

    def state_dict(self) -> dict[str, Any]:
        """Return the values after the last outer step, the momentum, and the numbers of steps."""
        return {"last": self._last, "momentum": self._momentum, "rounds": self.rounds, "alone": self.alone}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.rounds, self.alone = state["rounds"], state["alone"]
        torch._foreach_copy_(self._last, state["last"])
        torch._foreach_copy_(self._momentum, state["momentum"])


class CommonMomentum:
    """The part of an outer average's state that newcomers get beside the values, which are z0 at that moment."""

    def __init__(self, average: OuterAverage) -> None:
        self._average = average

    def state_dict(self) -> dict[str, Any]:
        """Return the momentum."""
        state = self._average.state_dict()
        return {"momentum": state["momentum"], "rounds": state["rounds"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over another peer's momentum."""
        self._average.load_state_dict({**self._average.state_dict(), **state})


def wide(tensor: torch.Tensor) -> torch.dtype:
    """Return the precision to calculate in."""
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32
