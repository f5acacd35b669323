"""Steps of an optimizer after its peer has ended: they are gossiped to nobody, and the script is told so once."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch.utils.hooks import RemovableHandle

__all__ = ["expect_no_step", "expect_steps"]

_handles: weakref.WeakKeyDictionary[torch.optim.Optimizer, RemovableHandle] = weakref.WeakKeyDictionary()


def expect_no_step(optimizer: torch.optim.Optimizer, tell: Callable[[], None]) -> None:
    """Call a function at the next step of the optimizer, unless it is attached to another peer before."""

    def stepped(stepping: torch.optim.Optimizer, _args: object, _kwargs: object) -> None:
        expect_steps(stepping)
        tell()

    expect_steps(optimizer)
    _handles[optimizer] = optimizer.register_step_pre_hook(stepped)


def expect_steps(optimizer: torch.optim.Optimizer) -> None:
    """Take back what `expect_no_step` has begun, if anything."""
    if (handle := _handles.pop(optimizer, None)) is not None:
        handle.remove()
