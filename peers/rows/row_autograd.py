"""What goes between processes, as functions that autograd knows.

There are two kinds of values. A *split* value is a process's own rows, and its gradient is that of these rows. A
*replicated* value is the same at all processes, such as a weight, or what the head of a model computes from gathered
rows. Its gradient is the whole one, the same at all processes, and never a part that somebody still has to add up. What
crosses from one kind to the other decides what the backward pass does:

| function | forward | backward |
|---|---|---|
| `TakeRows` | split to split: rows of others are fetched | gradients of these rows go back, and their owner adds them |
| `AllRows` | split to replicated: all rows everywhere | the own rows of the gradient; it is whole already |
| `SumRows` | split to replicated: a sum over all rows | the gradient as it is |
| `WholeGradients` | replicated to split: weights, as they are | the sum of what all rows found |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from peers.rows.row_group import RowGroup
from peers.rows.row_parts import Bounds

__all__ = ["AllRows", "SumRows", "TakeRows", "WholeGradients", "memory_order"]


class TakeRows(torch.autograd.Function):
    """From the rows that each process holds to those that it needs, with padding outside of the image."""

    @staticmethod
    def forward(
        ctx: Any, local: torch.Tensor, group: RowGroup, bounds: Bounds, needed: list[tuple[int, int]], fill: float
    ) -> torch.Tensor:
        """Return the needed rows; those above and below the image have the value ``fill``."""
        ctx.group, ctx.bounds, ctx.needed = group, bounds, needed
        low, high = needed[group.row]
        begin, end = bounds[group.row], bounds[group.row + 1]
        rows = torch.empty(
            (*local.shape[:2], high - low, local.shape[3]),
            dtype=local.dtype,
            device=local.device,
            memory_format=memory_order(local),
        )
        if low < 0:
            rows.narrow(2, 0, -low).fill_(fill)
        if high > bounds[-1]:
            below = max(bounds[-1], low)
            rows.narrow(2, below - low, high - below).fill_(fill)
        first, last = max(low, begin), min(high, end)
        if first < last:
            rows.narrow(2, first - low, last - first).copy_(local.narrow(2, first - begin, last - first))
        for first, last, values in group.fetch(local, bounds, needed):
            rows.narrow(2, first - low, last - first).copy_(values)
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of the own rows: what this process found, and what the others did."""
        (grad,) = grads
        group, bounds, (low, high) = ctx.group, ctx.bounds, ctx.needed[ctx.group.row]
        begin, end = bounds[group.row], bounds[group.row + 1]
        own = torch.zeros(
            (*grad.shape[:2], end - begin, grad.shape[3]), dtype=grad.dtype, device=grad.device
        ).contiguous(memory_format=memory_order(grad))
        first, last = max(low, begin), min(high, end)
        if first < last:
            own.narrow(2, first - begin, last - first).copy_(grad.narrow(2, first - low, last - first))
        for first, last, values in group.give_back(grad, bounds, ctx.needed):
            own.narrow(2, first - begin, last - first).add_(values)
        return own, None, None, None, None


class AllRows(torch.autograd.Function):
    """From a part of the rows to all of them, at all processes."""

    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, group: RowGroup, bounds: Bounds) -> torch.Tensor:
        """Return the whole image."""
        ctx.begin, ctx.height = bounds[group.row], local.shape[2]
        every = [(0, bounds[-1])] * group.size
        return TakeRows.forward(_Unused(), local, group, bounds, every, 0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the own rows of the gradient, which every process has whole."""
        return grads[0].narrow(2, ctx.begin, ctx.height).clone(), None, None


class _Unused:
    """Takes the place of a context where there is nothing to remember."""


class SumRows(torch.autograd.Function):
    """From a sum over the own rows to the sum over all."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, group: RowGroup) -> torch.Tensor:  # noqa: ARG004
        """Return the sum of the parts of all processes."""
        return group.sum(part)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ARG004
        """Return the gradient as it is: each part counts once in the sum."""
        return grads[0], None


class WholeGradients(torch.autograd.Function):
    """Replicated tensors that split layers use: their gradients are summed over the rows, all in one message."""

    @staticmethod
    def forward(ctx: Any, group: RowGroup, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the tensors as they are."""
        ctx.group = group
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Return the sums; a tensor that no split layer used has none."""
        found = list(grads)
        # Half precision is summed in float32, so it goes with that.
        for wide in (torch.float32, torch.float64):
            places = [place for place, grad in enumerate(grads) if grad is not None and _wide(grad.dtype) == wide]
            for place, total in zip(places, _sums(ctx.group, [grads[place] for place in places], wide), strict=True):
                found[place] = total
        return None, *found


def _sums(group: RowGroup, grads: Sequence[torch.Tensor | None], wide: torch.dtype) -> list[torch.Tensor]:
    """Return the sums over the rows of gradients that are of one type or narrower than it."""
    present = [grad for grad in grads if grad is not None]
    if not present:
        return []
    flat = group.sum(torch.cat([grad.reshape(-1).to(wide) for grad in present]))
    parts = flat.split([grad.numel() for grad in present])  # type: ignore[no-untyped-call]
    return [part.view(grad.shape).to(grad.dtype) for part, grad in zip(parts, present, strict=True)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which gradients of a type are summed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def memory_order(tensor: torch.Tensor) -> torch.memory_format:
    """Return the order in which a batch of images lies in memory."""
    last = tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format
