"""Tensors as one flat vector for sending: of double precision if any of them has it, otherwise of single precision."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gossip.values.blocks import Values

__all__ = ["FlatTensors"]


class FlatTensors:
    """Some tensors of one model; half precision is kept in single precision."""

    def __init__(self, tensors: Sequence[torch.Tensor], *, more: int = 0) -> None:
        """Lay the tensors out one after the other, followed by ``more`` further numbers."""
        self._tensors = tensors
        wide = any(tensor.dtype is torch.float64 for tensor in tensors)
        sizes = [tensor.numel() for tensor in tensors]
        self._flat = torch.zeros(sum(sizes) + more, dtype=torch.float64 if wide else torch.float32)
        *views, self.more = torch.split(self._flat, [*sizes, more])
        #: The view of each tensor's place in the vector.
        self.views = [view.view(tensor.shape) for view, tensor in zip(views, tensors, strict=True)]
        #: The vector: the same memory.
        self.values: Values = self._flat.numpy()

    @torch.no_grad()
    def gather(self) -> None:
        """Copy the tensors into the vector."""
        for view, tensor in zip(self.views, self._tensors, strict=True):
            view.copy_(tensor)

    @torch.no_grad()
    def scatter(self) -> None:
        """Copy the vector into the tensors."""
        for view, tensor in zip(self.views, self._tensors, strict=True):
            tensor.copy_(view)
