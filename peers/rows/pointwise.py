"""Functions that never look at another row: they run on the local rows, whatever their number."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from peers.rows.row_autograd import memory_order
from peers.rows.row_parts import Bounds, RowsError
from peers.rows.row_tensor import RowTensor, handles, named, whole

__all__: list[str] = []

#: Functions of one value at a time, of one or more tensors. Each may have a form with _ behind, which works in place.
_NAMES = """abs add addcdiv addcmul celu clamp clamp_max clamp_min clip clone contiguous cos detach div divide elu
erf exp expm1 eq float_power floor ge gelu gt hardshrink hardsigmoid hardswish hardtanh isfinite isinf
isnan le leaky_relu lerp log log1p log2 log_sigmoid logaddexp logical_and logical_not logical_or
logsigmoid lt maximum minimum mish mul multiply nan_to_num ne neg negative pow prelu reciprocal relu
relu6 round rsqrt rsub selu sigmoid sign silu sin softplus softshrink softsign sqrt square sub subtract
tanh tanhshrink threshold true_divide where masked_fill bfloat16 bool double float half to type_as
zeros_like ones_like requires_grad_ alias"""
_OPERATORS = """add radd iadd sub rsub isub mul rmul imul truediv rtruediv itruediv div rdiv idiv pow rpow ipow neg pos
abs eq ne lt le gt ge and or xor invert"""
_HOLDERS = (torch, torch.Tensor, functional, torch._C._nn, torch.special)
_POINTWISE = {
    *(getattr(holder, name + end, None) for holder in _HOLDERS for name in _NAMES.split() for end in ("", "_")),
    *(getattr(torch.Tensor, f"__{name}__", None) for name in _OPERATORS.split()),
    # It averages over channels, not over space.
    functional.local_response_norm,
}
_WORDS = """shape dtype device ndim layout requires_grad is_leaf is_cuda is_cpu is_sparse is_quantized is_meta is_mps
is_xpu is_nested is_mkldnn grad_fn itemsize"""
_CALLS = "size dim ndimension numel element_size is_floating_point is_complex get_device __len__ nelement"
#: What is asked about a tensor: the shape of the whole is that of the wrapper.
_FACTS = {
    *(getattr(getattr(torch.Tensor, name, None), "__get__", None) for name in _WORDS.split()),
    *(getattr(torch.Tensor, name, None) for name in _CALLS.split()),
    *(torch.is_floating_point, torch.is_complex, torch.numel, torch.Tensor.is_same_size),
}


@handles(*_FACTS)
def _fact(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


@handles(torch.Tensor.is_contiguous)
def _contiguous(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(args[0].local, *args[1:], **kwargs)


_FACTORIES = [getattr(torch.Tensor, f"new_{name}") for name in ("empty", "zeros", "ones", "full", "tensor")]


@handles(*_FACTORIES)
def _factory(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Make a plain tensor, of the shape that was asked for and the kind of this one."""
    made: torch.Tensor = func(args[0].local, *args[1:], **kwargs)
    return made


@handles(*_POINTWISE)
def _pointwise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function on the local rows of all its tensors."""
    first = next(one for one in (*args, *kwargs.values()) if isinstance(one, RowTensor))
    if "out" in kwargs:
        raise RowsError(f"out={type(kwargs['out']).__name__}: results are not written into other tensors; assign them")
    name = getattr(func, "__name__", "")
    operator = name.startswith("__")
    in_place = name.startswith("__i") and name != "__invert__" if operator else name.endswith("_")
    in_place = in_place or bool(kwargs.get("inplace"))
    if in_place and not isinstance(args[0], RowTensor):
        raise RowsError(f"{named(func)} would write rows into a plain tensor of the shape {tuple(args[0].shape)}")
    base = args[0] if in_place else first
    local = func(*(_own(one, base) for one in args), **{key: _own(one, base) for key, one in kwargs.items()})
    if not in_place:
        return base.like(local)
    if local.requires_grad:
        with torch._C.DisableTorchFunctionSubclass():
            base.requires_grad_()
    return base


def _own(value: Any, base: RowTensor) -> Any:
    """Return the rows of an operand that this process has, as ``base`` is cut; others than tensors as they are."""
    if isinstance(value, RowTensor):
        if value.bounds[-1] != base.bounds[-1]:
            raise RowsError(f"images of {value.bounds[-1]} and of {base.bounds[-1]} rows do not fit together")
        return value.at(base.bounds)
    if not isinstance(value, torch.Tensor):
        return value
    return _slice(base.of.replicated(value), base.bounds, base.of.group.row)


def _slice(value: torch.Tensor, bounds: Bounds, row: int) -> torch.Tensor:
    """Return the part of a replicated tensor that meets the rows of a process."""
    if value.ndim < 2 or value.shape[-2] == 1:
        return value
    if value.ndim > 4 or value.shape[-2] != bounds[-1]:
        raise RowsError(f"a tensor of the shape {tuple(value.shape)} does not fit images of {bounds[-1]} rows")
    return value.narrow(-2, bounds[row], bounds[row + 1] - bounds[row])


@handles(torch.cat, torch.concat, torch.concatenate)
def _concatenation(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = {**dict(zip(("tensors", "dim"), args, strict=False)), **kwargs}
    tensors, dim = given["tensors"], given.get("dim", 0)
    base = next(one for one in tensors if isinstance(one, RowTensor))
    if dim % 4 == 2:
        return func([whole(one) if isinstance(one, RowTensor) else one for one in tensors], dim)
    for one in tensors:
        if one.ndim != 4 or one.shape[2] != base.bounds[-1]:
            raise RowsError(f"images of {base.bounds[-1]} rows and a tensor {tuple(one.shape)} do not fit together")
    return base.like(func([_own(one, base) for one in tensors], dim))


@handles(torch.chunk, torch.Tensor.chunk, torch.split, torch.Tensor.split)
def _division(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, dim = args[0], kwargs.get("dim", args[2] if len(args) > 2 else 0)
    if dim % 4 == 2:
        return func(whole(x), *args[1:], **kwargs)
    x.check()
    return tuple(x.like(part) for part in func(x.local, *args[1:], **kwargs))


@handles(torch.softmax, torch.Tensor.softmax, functional.softmax, torch.log_softmax, functional.log_softmax)
def _softmax(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, dim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None)
    if dim is None or dim % 4 == 2:
        return func(whole(x), *args[1:], **kwargs)
    x.check()
    return x.like(func(x.local, *args[1:], **kwargs))


@handles(torch.Tensor.__getitem__)
def _item(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take channels, samples or columns of the local rows; whatever touches rows gets all of them."""
    x, index = args
    parts = list(index) if isinstance(index, tuple) else [index]
    simple = len(parts) <= 4 and all(isinstance(part, slice) for part in parts)
    if simple and parts[2:3] in ([], [slice(None)]):
        x.check()
        return x.like(func(x.local, index, **kwargs))
    return func(whole(x), index, **kwargs)


@handles(functional.dropout)
def _dropout(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Draw for the whole image and use the own rows: so that generators, which all begin alike, stay alike."""
    given: dict[str, Any] = {"p": 0.5, "training": True, "inplace": False}
    given |= dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
    x = given["input"]
    if not given["training"] or given["p"] == 0:
        return x
    x.check()
    with torch.no_grad():
        ones = torch.ones(tuple(x.shape), dtype=x.local.dtype, device=x.local.device)
        # Values are drawn in the order in which they lie in memory.
        kept = func(ones.contiguous(memory_format=memory_order(x.local)), given["p"], True)
        kept = kept.narrow(2, x.bounds[x.of.group.row], x.local.shape[2])
    if given["inplace"]:
        x.local.mul_(kept)
        return x
    return x.like(x.local * kept)


@handles(functional.dropout2d, torch.feature_dropout, functional.feature_alpha_dropout)
def _channel_dropout(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run on the local rows: what is drawn is drawn per channel, so it is the same at all processes."""
    images = args[0]
    images.check()
    local = func(images.local, *args[1:], **kwargs)
    return images if local is images.local else images.like(local)
