"""All gradients of a model as one flat vector, to be averaged, and back.

The vector holds the gradient of every parameter that is trained (zeros where it has none), then the floating-point
buffers, such as batch norm's statistics, which would drift apart otherwise, then for every parameter whether it has a
gradient. It is of double precision if any of them is, else of single: half precision is averaged in single and rounded
once. A parameter that has a gradient on no peer has none afterwards either, so no optimizer moves it.
"""

from __future__ import annotations

import torch

from gossip.values.blocks import Values
from peers.model.flat_tensors import FlatTensors

__all__ = ["Gradients"]


class Gradients:
    """The gradients of one model."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        self._flat = FlatTensors([*self._parameters, *self._buffers], more=len(self._parameters))
        #: The vector as the core sees it: the same memory.
        self.values: Values = self._flat.values
        #: How many of them are gradients: the first ones, and all that a codec may touch.
        self.count = sum(parameter.numel() for parameter in self._parameters)

    @torch.no_grad()
    def gather(self) -> None:
        """Fill the vector."""
        for view, buffer in zip(self._flat.views[len(self._parameters) :], self._buffers, strict=True):
            view.copy_(buffer)
        for index, parameter in enumerate(self._parameters):
            grad, view = parameter.grad, self._flat.views[index]
            self._flat.more[index] = grad is not None
            if grad is None:
                view.zero_()
            else:
                view.copy_(grad.to_dense() if grad.is_sparse else grad)

    @torch.no_grad()
    def scatter(self) -> None:
        """Give every parameter its gradient, and every buffer its values, from the vector."""
        for index, parameter in enumerate(self._parameters):
            view = self._flat.views[index]
            if not self._flat.more[index]:
                parameter.grad = None
            elif parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = view.to(parameter, copy=True)
            else:
                parameter.grad.copy_(view)
        for view, buffer in zip(self._flat.views[len(self._parameters) :], self._buffers, strict=True):
            buffer.copy_(view)

    def drop(self) -> None:
        """Leave no gradient, so that the optimizer does not move anything."""
        for parameter in self._parameters:
            parameter.grad = None
