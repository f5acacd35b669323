"""Batch norm over rows: the statistics are those of all rows, and running averages are the same at all processes."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from peers.rows.row_group import RowGroup
from peers.rows.row_parts import RowsError
from peers.rows.row_tensor import RowTensor, handles

__all__: list[str] = []


class _BatchNorm(torch.autograd.Function):
    """Normalize by the mean and the variance of all rows; the gradients of weight and bias are those of the own rows.

    With n values in a channel, y' the gradient and z the normalized values, as in dense batch norm:
    x' = w / sqrt(var + eps) * (y' - sum(y') / n - z * sum(y' z) / n), with sums over all rows.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, group: RowGroup
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the output, and the mean, the variance and the number of values per channel."""
        wide = x.to(_wide(x.dtype))
        own = torch.full_like(wide[0, :, 0, 0], wide.numel() // wide.shape[1])
        var, mean = torch.var_mean(wide, (0, 2, 3), correction=0)
        # The parts are put together as Chan et al. (1979) do: squares of raw values would cancel.
        means, squares, counts = group.table(torch.stack([mean, var * own, own])).unbind(1)
        count = counts.sum(0)
        mean = (means * counts).sum(0) / count
        var = (squares + counts * (means - mean).square()).sum(0) / count
        inverse = (var + eps).rsqrt()
        normal = (wide - _across(mean)) * _across(inverse)
        y = normal if weight is None else normal * _across(weight.to(wide.dtype))
        y = y if bias is None else y + _across(bias.to(wide.dtype))
        ctx.save_for_backward(x, weight, mean, inverse, count)
        ctx.group, ctx.bias_dtype = group, None if bias is None else bias.dtype
        ctx.mark_non_differentiable(mean, var, count)
        return y.to(x.dtype), mean, var, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of the values, the weight and the bias."""
        x, weight, mean, inverse, count = ctx.saved_tensors
        grad = grads[0].to(mean.dtype)
        normal = (x.to(mean.dtype) - _across(mean)) * _across(inverse)
        own = torch.stack([grad.sum((0, 2, 3)), (grad * normal).sum((0, 2, 3))])
        found = None
        if ctx.needs_input_grad[0]:
            plain, along = ctx.group.sum(own) / count
            scale = inverse if weight is None else inverse * weight.to(mean.dtype)
            found = ((grad - _across(plain) - normal * _across(along)) * _across(scale)).to(x.dtype)
        weight_grad = None if weight is None else own[1].to(weight.dtype)
        bias_grad = None if ctx.bias_dtype is None else own[0].to(ctx.bias_dtype)
        return found, weight_grad, bias_grad, None, None


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which statistics are computed."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _across(values: torch.Tensor) -> torch.Tensor:
    """Return one value per channel in the shape of images."""
    return values[:, None, None]


@handles(functional.batch_norm)
def _batch_norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RowTensor:
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    given: dict[str, Any] = {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5}
    given |= dict(zip(names, args, strict=False)) | kwargs
    x, running_mean, running_var, weight, bias, training, momentum, eps = (given[name] for name in names)
    if not isinstance(x, RowTensor):
        raise RowsError(f"its first tensor is a {type(x).__name__}, and must be the rows of images")
    x.check()
    weight, bias = x.of.replicated(weight), x.of.replicated(bias)
    if not training:
        return x.like(func(x.local, running_mean, running_var, weight, bias, False, momentum, eps))
    results = _BatchNorm.apply(x.local, weight, bias, eps, x.of.group)  # type: ignore[no-untyped-call]
    y, mean, var, count = results
    if running_mean is not None:
        with torch.no_grad():
            running_mean.mul_(1 - momentum).add_(mean * momentum)
            running_var.mul_(1 - momentum).add_(var * (count / (count - 1)) * momentum)
    return x.like(y)
