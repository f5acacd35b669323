"""Rows are gathered: by the user's word, or where a model leaves its images, as for its head."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from peers.rows.row_autograd import SumRows
from peers.rows.row_tensor import RowTensor, handles, whole

__all__ = ["GatherRows", "gather_rows"]


def gather_rows(x: torch.Tensor) -> torch.Tensor:
    """Return all rows of an activation at every process, for use inside a model; what follows runs at all processes.

    Any other tensor, as in a model that is not split, is returned as it is.
    """
    return whole(x) if isinstance(x, RowTensor) else x


class GatherRows(torch.nn.Module):
    """The module of `gather_rows`: to be put before a module that cannot be computed on parts of the rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return all rows."""
        return gather_rows(x)


def _gathered(values: Any) -> Any:
    """Return arguments with all rows."""
    if isinstance(values, RowTensor):
        return whole(values)
    if isinstance(values, list | tuple):
        return type(values)(_gathered(one) for one in values)
    return values


_HEADS = (
    *(torch.flatten, torch.Tensor.flatten, torch.Tensor.view, torch.Tensor.reshape, torch.reshape, torch.squeeze),
    *(torch.Tensor.squeeze, functional.linear, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__),
    *(functional.adaptive_max_pool2d, torch.amax, torch.Tensor.amax, torch.amin, torch.Tensor.amin),
    *(torch.argmax, torch.Tensor.argmax, functional.cross_entropy, functional.nll_loss, functional.mse_loss),
    *(functional.l1_loss, functional.smooth_l1_loss, functional.binary_cross_entropy_with_logits),
)


@handles(*_HEADS)
def _head(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gather the rows, and run the function on all of them at every process."""
    return func(*(_gathered(one) for one in args), **{name: _gathered(one) for name, one in kwargs.items()})


@handles(functional.adaptive_avg_pool2d)
def _adaptive_average(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Sum up the rows if the output is a single value per channel; gather them for any other output."""
    x, size, *_ = (*args, kwargs.get("output_size"))
    if isinstance(x, RowTensor) and size in (1, (1, 1), [1, 1]):
        return _reduced(x, {2, 3}, True, mean=True)
    return _head(func, args, kwargs)


@handles(torch.mean, torch.Tensor.mean, torch.sum, torch.Tensor.sum)
def _average(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Sum up the rows if the mean or the sum goes over them; leave the other axes to torch."""
    x, *rest = args
    given = {**dict(zip(("dim", "keepdim"), rest, strict=False)), **kwargs}
    dim, keepdim = given.pop("dim", None), bool(given.pop("keepdim", False))
    if given or len(rest) > 2 or not isinstance(x, RowTensor):
        return _head(func, args, kwargs)
    axes = {0, 1, 2, 3} if dim is None or dim == () else {one % 4 for one in ((dim,) if isinstance(dim, int) else dim)}
    if 2 in axes:
        return _reduced(x, axes, keepdim, mean="mean" in func.__name__)
    if keepdim:
        return x.like(func(x.local, tuple(axes), keepdim=True))
    return _head(func, args, kwargs)


def _reduced(x: RowTensor, axes: set[int], keepdim: bool, *, mean: bool) -> torch.Tensor:
    """Return the mean or the sum over axes, the rows among them, as a replicated tensor."""
    x.check()
    half = x.local.dtype in (torch.float16, torch.bfloat16)
    part = x.local.sum(tuple(axes), keepdim=keepdim, dtype=torch.float32 if half else None)
    total: torch.Tensor = SumRows.apply(part, x.of.group)  # type: ignore[no-untyped-call]
    return (total / math.prod(x.shape[axis] for axis in axes) if mean else total).to(x.local.dtype)
