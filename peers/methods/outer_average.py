"""The outer step of one replica on the mean of what all peers have moved: for outer, where the derivation is.

With z0 the values after the last outer step, s the mean over all peers of z0 - z, and z' those to which this peer has
moved while the mean travelled:

    u <- decay u + s        z0 <- z0 - rate (s + decay u)        z <- z0 + (z' - z)

z0 and u are the same bits at all peers that take part. Buffers, such as batch norm's statistics, take no outer step:
they become the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import xxhash

from gossip.policies.policy import Outer
from peers.methods.method import Method
from peers.model.gradients import Gradients

__all__ = ["CommonMomentum", "OuterAverage"]


class OuterAverage(Method):
    """Memory: z0, u, the vector that is averaged, and z as it was then; each has the size of the model."""

    def __init__(self, outer: Outer, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._outer = outer
        #: What is averaged.
        self.vector = Gradients(model, optimizer)
        self._values: list[torch.Tensor] = list(self.vector.parameters)
        self._last = [one.detach().clone() for one in self._values]
        self._momentum = [torch.zeros_like(one, dtype=wide(one)) for one in self._last]
        #: The values that were put into the average that travels; None: none does.
        self._sent: list[torch.Tensor] | None = None
        #: The number of outer steps.
        self.rounds = 0
        #: The number of steps whose moves are in no average yet, and of those whose moves are in the one that travels.
        self.alone = self._travelling = 0

    @torch.no_grad()
    def start(self) -> None:
        """Treat the present values as those after an outer step."""
        if not self.restored:
            torch._foreach_copy_(self._last, self._values)

    @property
    def common(self) -> Mapping[int, torch.Tensor]:
        """The values that all peers have in common, z0, by the ``id`` of the parameter."""
        return {id(one): last for one, last in zip(self._values, self._last, strict=True)}

    @property
    def travels(self) -> bool:
        """Whether an average travels."""
        return self._sent is not None

    @torch.no_grad()
    def gather(self) -> None:
        """Fill the vector with what this peer has moved since z0; from now on it travels."""
        self.vector.gather_moves(self._last)
        self._sent = [one.detach().clone() for one in self._values]
        self._travelling, self.alone = self.alone, 0

    @torch.no_grad()
    def step(self) -> None:
        """Take an outer step with the mean, which the vector holds; keep what this peer has moved meanwhile."""
        assert self._sent is not None, "an average travels"
        self.rounds += 1
        self.vector.scatter_buffers()
        for z, sent, last, momentum, mean in zip(
            self._values, self._sent, self._last, self._momentum, self.vector.moves, strict=True
        ):
            moved = mean.to(momentum)
            momentum.mul_(self._outer.decay).add_(moved)
            last.copy_(last.to(momentum.dtype) - self._outer.rate * (moved + self._outer.decay * momentum))
            z.copy_(last.to(momentum.dtype) + (z.to(momentum.dtype) - sent.to(momentum.dtype)))
        self._sent, self._travelling = None, 0

    @torch.no_grad()
    def rewind(self) -> None:
        """Go back to z0: the average that travelled does not count, and what was moved since z0 neither."""
        torch._foreach_copy_(self._values, self._last)
        self._sent, self._travelling, self.alone = None, 0, 0

    @torch.no_grad()
    def moved(self) -> list[torch.Tensor]:
        """Return how far this peer has moved with the steps that are in no average yet."""
        since = self._last if self._sent is None else self._sent
        return [z.to(wide(z)) - before.to(wide(z)) for z, before in zip(self._values, since, strict=True)]

    @torch.no_grad()
    def adopt(self, moved: list[torch.Tensor] | None) -> None:
        """Treat the present values, which are another peer's z0, as z0, and go on from there.

        Args:
            moved: how far this peer has moved with steps that are in no average yet; None: it has not.
        """
        torch._foreach_copy_(self._last, self._values)
        if self._sent is not None:
            torch._foreach_copy_(self._sent, self._values)
        for z, move in zip(self._values, moved or (), strict=moved is not None):
            z.copy_(z.to(move.dtype) + move)

    def seal(self) -> int:
        """Return a hash of what all peers have in common, for `gossip.events.Synchronize`."""
        digest = xxhash.xxh3_64()
        for one in (*self._last, *self._momentum):
            digest.update(one.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
        return digest.intdigest() >> 11 or 1

    def state_dict(self) -> dict[str, Any]:
        """Return the values after the last outer step, the momentum, and the numbers of steps.

        Whoever continues from it puts what travels now into its next average: it is part of how far z is from z0.
        """
        alone = self.alone + self._travelling
        return {"last": self._last, "momentum": self._momentum, "rounds": self.rounds, "alone": alone}

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
