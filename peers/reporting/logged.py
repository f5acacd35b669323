"""What a user may log with a step: names and values that fit into the step's line of the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from peers.reporting.numbers import as_number

__all__ = ["RESERVED", "why_not_logged"]

#: The names that every line of the metrics has already, or that TensorBoard shows.
RESERVED = frozenset(
    ("bytes_received", "bytes_sent", "samples", "seconds", "step", "time", "wait_seconds", "wait_share", "weight")
)


def why_not_logged(values: Mapping[str, Any]) -> str | None:
    """Return the reason why these values cannot be logged, or None if they can. It does not wait for a GPU."""
    if taken := sorted(RESERVED & values.keys()):
        return f"{', '.join(taken)}: the peer itself logs a value of this name: choose another name"
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            if value.numel() != 1 or value.is_complex() or value.is_meta:
                shape = tuple(value.shape)
                return f"{name} is a tensor of {value.dtype} with the shape {shape}: log one real number, or its mean"
        elif value is not None and not isinstance(value, str | int) and as_number(value) is None:
            return f"{name} is a {type(value).__name__}: log a number, or text"
    return None
