"""The moment when a script is through with a step: before the next pass of its model in training.

What a loop does after ``optimizer.step()`` belongs to that step: schedulers, scalers, averaged copies of the model. No
call marks its end, unless the loop asks `Peer.batches` for a batch. But it is over when the model computes again with
gradients, or, if the script computes in some other way, when the optimizer steps again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

__all__ = ["NextPass"]


class NextPass:
    """Waits for the next pass of one model, at most one at a time."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._act: Callable[[], None] | None = None
        self._handles: list[RemovableHandle] = []

    def expect(self, act: Callable[[], None]) -> None:
        """Call the function once, before the next pass, unless `now` comes first."""
        self.cancel()
        self._act = act
        hook = _Hook(self.now)
        # Of all parts, for a script may never call the whole. Scripted ones take no hooks that are not scripted.
        parts = [part for part in self._model.modules() if not isinstance(part, torch.jit.ScriptModule)]
        # Ahead of all other hooks: FSDP's gathers the parameters for the pass, and a checkpoint wants the parts.
        self._handles = [part.register_forward_pre_hook(hook, prepend=True) for part in parts]

    def now(self) -> None:
        """Call the function that waits, if there is one: the script is through with its step."""
        act = self._act
        self.cancel()
        if act is not None:
            act()

    def cancel(self) -> None:
        """Forget the function that waits."""
        for handle in self._handles:
            handle.remove()
        self._act, self._handles = None, []


class _Hook:
    """Tells of a pass in training. A copy of the model, and a file of it, has a hook that does nothing instead."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def __call__(self, module: torch.nn.Module, _args: object) -> None:
        if module.training and torch.is_grad_enabled():
            self._tell()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # As a hook, `get` of an empty dict returns the arguments as they are; and whoever loads a file needs no gossip.
        return getattr, ({}, "get")
