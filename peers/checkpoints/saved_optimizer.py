"""What a script should know of its optimizer when a checkpoint brings back the optimizer of another start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from peers.checkpoints.manifest import CheckpointError
from peers.model.trained import rate_of

__all__ = ["check_same_kind", "rates_differ", "rates_of"]


def check_same_kind(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Raise a `CheckpointError` if the checkpoint is of another kind of optimizer: torch would fail steps later.

    Kinds differ if each has settings that the other lacks. A version of torch may know more settings than an earlier
    one.
    """
    for group in saved["param_groups"]:
        lacking = sorted(optimizer.defaults.keys() - group.keys())
        unknown = sorted(group.keys() - optimizer.defaults.keys() - {"params", "initial_lr", "param_names"})
        if lacking and unknown:
            raise CheckpointError(
                f"the checkpoint is of another optimizer than this {type(optimizer).__name__}: it has "
                f"{', '.join(unknown)} and lacks {', '.join(lacking)}. Resume with the optimizer that was saved, or "
                "begin a new run with the weights of this one"
            )


def rates_of(groups: Sequence[dict[str, Any]]) -> list[float]:
    """Return the learning rate of each group: the one that a scheduler began with, if there is one."""
    return [float(group["initial_lr"]) if "initial_lr" in group else rate_of(group) for group in groups]


def rates_differ(script: Sequence[float], saved: Sequence[float]) -> str | None:
    """Return a sentence that says which learning rate holds, if the script and the checkpoint differ."""
    for one, other in zip(script, saved, strict=True):
        if one != other:
            return (
                f"the script sets a learning rate of {one:g} and the checkpoint has {other:g}: the checkpoint's holds. "
                "To train with another, set it in optimizer.param_groups after peer.attach"
            )
    return None
