"""Parameters of half precision whose values are kept, trained and mixed in single.

Micikevicius et al. 2017, "Mixed precision training", arXiv:1710.03740. bfloat16 has 8 significant bits: a step that is
smaller than about 1/256 of a value does nothing to it, and neither does the last part of the way to an average. So the
model computes with copies, and what the optimizer moves and peers exchange, the mass, is of single precision:

    master = Master(model.bfloat16())
    optimizer = torch.optim.SGD(master.parameters(), lr=0.1)
    peer.attach(master.single, optimizer)
    ...
    loss = criterion(model(inputs), targets)
    loss.backward()
    master.gather()  # the model's gradients and buffers become the master's
    optimizer.step()
    master.scatter()  # and the master's values the model's

bfloat16 has float32's range, so no `GradScaler` is needed; float16 needs one, and `torch.amp` does all of this for it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch

__all__ = ["Master"]


class Master:
    """A model, and its values in single precision. Memory: a model of single precision more."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Copy the values of a model that is on its device and of the precision that it computes in."""
        self._model = model
        #: What is to be attached, evaluated and saved: the same model, of single precision.
        self.single = copy.deepcopy(model).float()

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Yield what the optimizer is to move."""
        return self.single.parameters()

    @torch.no_grad()
    def gather(self) -> None:
        """Take the model's gradients, which leaves it without, and its buffers; before ``optimizer.step()``."""
        for value, parameter in zip(self.single.parameters(), self._model.parameters(), strict=True):
            value.grad = None if parameter.grad is None else parameter.grad.to(value.dtype)
            parameter.grad = None
        for kept, buffer in zip(self.single.buffers(), self._model.buffers(), strict=True):
            kept.copy_(buffer)

    @torch.no_grad()
    def scatter(self) -> None:
        """Give the model the values; after ``optimizer.step()``, ``attach``, and whatever else changes them."""
        for value, parameter in zip(self.single.parameters(), self._model.parameters(), strict=True):
            parameter.copy_(value)
        for kept, buffer in zip(self.single.buffers(), self._model.buffers(), strict=True):
            buffer.copy_(kept)
