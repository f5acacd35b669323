"""Which tensors a checkpoint can hold, and their copies in CPU memory."""

from __future__ import annotations

from collections.abc import Hashable

import torch

from gossip.errors import GossipError

__all__ = ["DTYPES", "StateError", "copy_to_cpu", "memory_of", "why_not"]

#: The dtypes that safetensors supports. complex128 is not among them.
DTYPES = frozenset(
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.bool, torch.complex64),
        *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    ]
)


class StateError(GossipError, TypeError):
    """A checkpoint cannot hold the state, or the state is not the expected one. The message says where in it."""


def why_not(tensor: torch.Tensor) -> str | None:
    """Return the reason why a checkpoint cannot hold this tensor, or None if it can."""
    # A subclass may give its values another meaning (a DTensor has only a part of them), so subclasses are refused.
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"is a {type(tensor).__module__}.{type(tensor).__qualname__}, not a plain tensor"
    if tensor.layout != torch.strided or tensor.is_nested:
        return f"is not dense ({'nested' if tensor.is_nested else tensor.layout})"
    if tensor.device.type == "meta":
        return "is on the device meta and has no values"
    if tensor.dtype not in DTYPES:  # quantized dtypes are not either
        return f"has the type {tensor.dtype}, which safetensors does not support"
    return None


def memory_of(tensor: torch.Tensor) -> Hashable:
    """Return a key that is equal for two tensors with the same values in the same memory, such as tied weights."""
    if tensor.numel() == 0:
        return id(tensor)  # empty tensors share nothing, though all are at address 0
    view = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
    return tensor.device, tensor.dtype, *view


def copy_to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy in CPU memory that later steps do not change."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    return copy.copy_(tensor.detach())
