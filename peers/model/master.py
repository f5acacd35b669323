"""Parameters of half precision whose values are kept, trained and mixed in single precision.

Micikevicius et al. 2017, "Mixed precision training", arXiv:1710.03740. bfloat16 has 8 significant bits: a step that is
smaller than about 1/256 of a value does not change it, and small moves towards an average do not either. So the model
computes with copies. The optimizer moves, and peers exchange, values of single precision:

    master = Master(model.bfloat16())
    optimizer = torch.optim.SGD(master.parameters(), lr=0.1)
    peer.attach(master.single, optimizer)
    ...
    loss = criterion(model(inputs), targets)
    loss.backward()
    master.gather()  # copies the model's gradients and buffers to the master
    optimizer.step()
    master.scatter()  # copies the master's values to the model

bfloat16 has float32's range, so no `GradScaler` is needed. float16 needs one; use `torch.amp`, which does all of this.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch

__all__ = ["Master"]


class Master:
    """A model, and its values in single precision. It needs the memory of a second model, of single precision."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Copy the values of a model, which must already be on its device and in its precision."""
        self._model = model
        #: The same model in single precision: attach, evaluate and save this one.
        self.single = copy.deepcopy(model).float()

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Yield the parameters for the optimizer."""
        return self.single.parameters()

    @torch.no_grad()
    def gather(self) -> None:
        """Move the model's gradients, and copy its buffers, to the master. Call it before ``optimizer.step()``."""
        for value, parameter in zip(self.single.parameters(), self._model.parameters(), strict=True):
            value.grad = None if parameter.grad is None else parameter.grad.to(value.dtype)
            parameter.grad = None
        for kept, buffer in zip(self.single.buffers(), self._model.buffers(), strict=True):
            kept.copy_(buffer)

    @torch.no_grad()
    def scatter(self) -> None:
        """Copy the values to the model. Call it after ``optimizer.step()``, ``attach``, and any other change."""
        for value, parameter in zip(self.single.parameters(), self._model.parameters(), strict=True):
            parameter.copy_(value)
        for kept, buffer in zip(self.single.buffers(), self._model.buffers(), strict=True):
            buffer.copy_(kept)
