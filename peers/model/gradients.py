"""All gradients of a model, all its moves, or all its values, as one flat vector, for averaging.

The vector holds the gradient of every trained parameter (zeros if it has none), then the floating-point buffers, such
as batch norm's statistics, which would drift apart otherwise, then a flag for every parameter: whether it has a
gradient. The last flag says that the vector holds the values of the parameters instead: a peer that agrees averages
those, and a peer that trains at the same moment must not take them for gradients. The vector is of double precision if
any tensor is, otherwise of single precision: half precision is averaged in single precision and rounded once. A
parameter without a gradient on every peer has none after the averaging either, so no optimizer moves it.

`torch.amp.GradScaler` leaves it to fused optimizers to divide by the loss scale. Each peer has a scale of its own, so
the gradients are divided here, before they are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from gossip.values.blocks import Values
from peers.model.flat_tensors import FlatTensors

__all__ = ["Gradients"]


class Gradients:
    """The gradients of one model."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Prepare; an optimizer that would divide by a loss scale itself must be named."""
        self._optimizer = optimizer
        #: The trained parameters.
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        self._flat = FlatTensors([*self.parameters, *self._buffers], more=len(self.parameters) + 1)
        #: The vector for the core: the same memory.
        self.values: Values = self._flat.values
        #: The number of gradients in it. They come first, and a codec may compress only them.
        self.count = sum(parameter.numel() for parameter in self.parameters)

    @torch.no_grad()
    def gather(self) -> None:
        """Fill the vector."""
        self._unscale()
        self._flat.more[-1] = 0
        self._gather_buffers()
        for index, parameter in enumerate(self.parameters):
            grad, view = parameter.grad, self._flat.views[index]
            self._flat.more[index] = grad is not None
            if grad is None:
                view.zero_()
            else:
                view.copy_(grad.to_dense() if grad.is_sparse else grad)

    @torch.no_grad()
    def scatter(self) -> None:
        """Copy the vector into the gradients of the parameters and into the buffers."""
        for index, parameter in enumerate(self.parameters):
            view = self._flat.views[index]
            if not self._flat.more[index]:
                parameter.grad = None
            elif parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = view.to(parameter, copy=True)
            else:
                parameter.grad.copy_(view)
        self.scatter_buffers()

    @property
    def moves(self) -> list[torch.Tensor]:
        """The part of the vector for each trained parameter, which `gather_moves` has filled, and its mean."""
        return self._flat.views[: len(self.parameters)]

    @torch.no_grad()
    def gather_moves(self, since: Sequence[torch.Tensor]) -> None:
        """Fill the vector with how far the parameters have moved from these values, with the sign of a gradient."""
        self._flat.more[:] = 0
        self._gather_buffers()
        for view, parameter, before in zip(self.moves, self.parameters, since, strict=True):
            view.copy_(before.to(view.dtype) - parameter.to(view.dtype))

    def _gather_buffers(self) -> None:
        for view, buffer in zip(self._flat.views[len(self.parameters) :], self._buffers, strict=True):
            view.copy_(buffer)

    @torch.no_grad()
    def scatter_buffers(self) -> None:
        """Copy the vector into the buffers."""
        for view, buffer in zip(self._flat.views[len(self.parameters) :], self._buffers, strict=True):
            buffer.copy_(view)

    @property
    def of_one_kind(self) -> bool:
        """Whether all peers averaged the same: gradients, or values."""
        return float(self._flat.more[-1]) in (0.0, 1.0)

    def gather_values(self) -> None:
        """Fill the vector with the values of parameters and buffers."""
        self._flat.gather()
        self._flat.more[:] = 1

    def scatter_values(self) -> float:
        """Copy the vector into parameters and buffers; return how far they were from it, relative to its length."""
        mean = self.values.copy()
        self._flat.gather()
        # In double precision: squares of single precision overflow early.
        apart = float(np.linalg.norm((self.values - mean).astype(np.float64)[: -len(self._flat.more)]))
        length = float(np.linalg.norm(mean.astype(np.float64)[: -len(self._flat.more)]))
        self.values[:] = mean
        self._flat.scatter()
        return apart / length if length else math.inf if apart else 0.0

    def drop(self) -> None:
        """Remove all gradients, so that the optimizer moves nothing."""
        for parameter in self.parameters:
            parameter.grad = None

    def _unscale(self) -> None:
        scale = getattr(self._optimizer, "grad_scale", None)
        if self._optimizer is None or scale is None:
            return
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(scale.to(parameter.grad.device))
        self._optimizer.grad_scale = None  # type: ignore[attr-defined]
