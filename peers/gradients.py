"""All gradients of a model as one flat vector, to be averaged, and back.

The vector holds the gradient of every parameter that is trained (zeros where it has none), then the floating-point
buffers, such as batch norm's statistics, which would drift apart otherwise, then for every parameter whether it has a
gradient. It is of double precision if any of them is, else of single: half precision is averaged in single and rounded
once. A parameter that has a gradient on no peer has none afterwards either, so no optimizer moves it.
"""

from __future__ import annotations

import torch

from gossip.mass import Values

__all__ = ["Gradients"]


class Gradients:
    """The gradients of one model."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        tensors = [*self._parameters, *self._buffers]
        wide = any(tensor.dtype is torch.float64 for tensor in tensors)
        size = sum(tensor.numel() for tensor in tensors) + len(self._parameters)
        self._flat = torch.zeros(size, dtype=torch.float64 if wide else torch.float32)
        sizes = [tensor.numel() for tensor in tensors]
        *views, self._has = torch.split(self._flat, [*sizes, len(self._parameters)])
        self._views = [view.view(tensor.shape) for view, tensor in zip(views, tensors, strict=True)]
        #: The vector as the core sees it: the same memory.
        self.values: Values = self._flat.numpy()

    @torch.no_grad()
    def gather(self) -> None:
        """Fill the vector."""
        for index, parameter in enumerate(self._parameters):
            grad = parameter.grad
            self._has[index] = grad is not None
            if grad is None:
                self._views[index].zero_()
            else:
                self._views[index].copy_(grad.to_dense() if grad.is_sparse else grad)
        for view, buffer in zip(self._views[len(self._parameters) :], self._buffers, strict=True):
            view.copy_(buffer)

    @torch.no_grad()
    def scatter(self) -> None:
        """Give every parameter its gradient, and every buffer its values, from the vector."""
        for index, parameter in enumerate(self._parameters):
            if not self._has[index]:
                parameter.grad = None
            elif parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = self._views[index].to(parameter, copy=True)
            else:
                parameter.grad.copy_(self._views[index])
        for view, buffer in zip(self._views[len(self._parameters) :], self._buffers, strict=True):
            buffer.copy_(view)

    def drop(self) -> None:
        """Leave no gradient, so that the optimizer does not move anything."""
        for parameter in self._parameters:
            parameter.grad = None
