"""Convolutions and poolings over rows: fetch the halo, then run torch's own function on the rows that are needed.

The rows of padding are part of what is fetched, so the function itself pads columns only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from peers.rows.row_parts import Bounds, RowsError, Window
from peers.rows.row_tensor import RowTensor, handles, whole

__all__: list[str] = []


def _pair(value: Any) -> tuple[int, int]:
    """Return a setting for rows and for columns."""
    if isinstance(value, int):
        return value, value
    values = tuple(int(one) for one in value)
    return (values[0], values[0]) if len(values) == 1 else (values[0], values[1])


def _images(x: Any, others: tuple[Any, ...] = ()) -> RowTensor:
    """Return the argument that holds rows: the first one, and no other."""
    if not isinstance(x, RowTensor) or any(isinstance(other, RowTensor) for other in others):
        raise RowsError(f"only its first of {1 + len(others)} tensors may be rows of images, not a weight or a bias")
    return x


def _arguments(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any], **defaults: Any) -> list[Any]:
    """Return the arguments in the order of the names."""
    given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
    if unknown := given.keys() - set(names):
        raise RowsError(f"the argument {sorted(unknown)[0]} is not known here")
    return [given[name] for name in names]


def _windowed(x: RowTensor, window: Window, fill: float = 0.0) -> tuple[torch.Tensor, Bounds]:
    """Return the rows under the windows of this process, and the bounds of the output."""
    height = x.bounds[-1]
    if window.out_height(height) < 1:
        raise RowsError(f"a window of {window.extent} rows does not fit into an image of {height} rows")
    bounds = window.out_bounds(x.bounds)
    return x.rows_for(window.needed(bounds), fill), bounds


@handles(torch.conv2d)
def _convolution(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RowTensor:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given = _arguments(names, args, kwargs, bias=None, stride=1, padding=0, dilation=1, groups=1)
    images, weight, bias, stride, padding, dilation, groups = given
    x = _images(images, (weight, bias))
    (down, across), (spread, spread_across) = _pair(stride), _pair(dilation)
    above = below = left = right = 0
    if padding == "same":
        if (down, across) != (1, 1):
            raise RowsError(f"padding='same' needs stride 1, not {(down, across)}")
        above, left = spread * (weight.shape[2] - 1) // 2, spread_across * (weight.shape[3] - 1) // 2
        below, right = spread * (weight.shape[2] - 1) - above, spread_across * (weight.shape[3] - 1) - left
    elif padding != "valid":
        (above, left) = (below, right) = _pair(padding)
    rows, bounds = _windowed(x, Window(weight.shape[2], down, above, below, spread))
    if left != right:
        rows, left = functional.pad(rows, (left, right)), 0
    weight, bias = x.of.replicated(weight), x.of.replicated(bias)
    return x.like(func(rows, weight, bias, (down, across), (0, left), (spread, spread_across), groups), bounds)


@handles(functional.max_pool2d, torch.max_pool2d)
def _max_pooling(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    defaults = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
    images, kernel, stride, padding, dilation, ceil, _ = _arguments(names, args, kwargs, **defaults)
    x = _images(images)
    (high, wide), (down, across) = _pair(kernel), _pair(stride if stride else kernel)
    (above, left), (spread, spread_across) = _pair(padding), _pair(dilation)
    window = Window(high, down, above, above, spread, ceil)
    if window.out_height(x.bounds[-1]) == 1:  # of the whole image: for the head
        return functional.max_pool2d(whole(x), kernel, stride, padding, dilation, ceil)
    rows, bounds = _windowed(x, window, float("-inf"))
    return x.like(
        functional.max_pool2d(rows, (high, wide), (down, across), (0, left), (spread, spread_across), ceil), bounds
    )


@handles(functional.avg_pool2d)
def _average_pooling(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    defaults = {"stride": None, "padding": 0, "ceil_mode": False, "count_include_pad": True, "divisor_override": None}
    images, kernel, stride, padding, ceil, padded, divisor = _arguments(names, args, kwargs, **defaults)
    x = _images(images)
    (high, wide), (down, across), (above, left) = _pair(kernel), _pair(stride if stride else kernel), _pair(padding)
    window, row = Window(high, down, above, above, 1, ceil), x.of.group.row
    if window.out_height(x.bounds[-1]) == 1:  # of the whole image: for the head
        return func(whole(x), kernel, stride, padding, ceil, padded, divisor)
    rows, bounds = _windowed(x, window)
    # The number of values under a window differs at the edges, so sums are taken, and divided by the number.
    sums = func(rows, (high, wide), (down, across), (0, left), ceil, True, 1)
    if divisor is not None:
        return x.like(sums / divisor, bounds)
    down_counts = _counts(window, x.bounds[-1], bounds[row], bounds[row + 1], padded)
    columns = Window(wide, across, left, left, 1, ceil)
    across_counts = _counts(columns, x.local.shape[3], 0, sums.shape[3], padded)
    counts = torch.tensor(down_counts, dtype=sums.dtype, device=sums.device)[:, None]
    return x.like(sums / (counts * torch.tensor(across_counts, dtype=sums.dtype, device=sums.device)), bounds)


def _counts(window: Window, length: int, first: int, last: int, padded: bool) -> list[int]:
    """Return the number of values under each of the windows from ``first`` to below ``last``, as torch counts them."""
    edges = (-window.above, length + window.below) if padded else (0, length)
    starts = [place * window.stride - window.above for place in range(first, last)]
    return [min(start + window.kernel, edges[1]) - max(start, edges[0]) for start in starts]


@handles(functional.pad, functional.pad.__wrapped__ if hasattr(functional.pad, "__wrapped__") else None)
def _padding(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RowTensor:
    images, pad, mode, value = _arguments(("input", "pad", "mode", "value"), args, kwargs, mode="constant", value=None)
    x = _images(images)
    left, right, above, below, *more = (*(int(one) for one in pad), *[0] * max(4 - len(pad), 0))
    if any(more):
        raise RowsError(f"pad={tuple(pad)} pads channels or samples: gather the rows before it")
    if (above or below) and (mode != "constant" or above < 0 or below < 0):
        raise RowsError(
            f"pad={tuple(pad)} with mode={mode!r}: rows are only padded with a constant and never cropped; use "
            "padding_mode='zeros', or gather the rows before it"
        )
    x.check()
    group = x.of.group
    own = (left, right, above if group.row == 0 else 0, below if group.row == group.size - 1 else 0)
    inner = tuple(bound + above for bound in x.bounds[1:-1])
    return x.like(func(x.local, own, mode, value), (0, *inner, x.bounds[-1] + above + below))


@handles(functional.interpolate, functional.upsample)
def _upsampling(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RowTensor:  # noqa: ARG001
    names = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
    defaults: dict[str, Any] = {"size": None, "scale_factor": None, "mode": "nearest", "align_corners": None}
    defaults |= {"recompute_scale_factor": None, "antialias": False}
    images, size, scale, mode, *_ = _arguments(names, args, kwargs, **defaults)
    x = _images(images)
    shape = x.bounds[-1], x.local.shape[3]
    if size is not None:
        factors = [out / own for out, own in zip(_pair(size), shape, strict=True)]
    else:
        factors = [float(one) for one in (scale if isinstance(scale, list | tuple) else (scale, scale))]
    if mode not in ("nearest", "nearest-exact") or any(one < 1 or one != int(one) for one in factors):
        raise RowsError(
            f"mode={mode!r} with factors {factors}: on rows only mode='nearest' with whole factors is computed; use "
            "that, or gather the rows before it"
        )
    x.check()
    down, across = (int(one) for one in factors)
    larger = functional.interpolate(x.local, (x.local.shape[2] * down, shape[1] * across), mode=mode)
    return x.like(larger, tuple(bound * down for bound in x.bounds))


@handles(functional.pixel_shuffle)
def _pixel_shuffle(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RowTensor:
    images, factor = _arguments(("input", "upscale_factor"), args, kwargs)
    x = _images(images)
    x.check()
    return x.like(func(x.local, factor), tuple(bound * factor for bound in x.bounds))
