"""Where gossip enters a training loop: before and after every step of the user's optimizer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

__all__ = ["StepHooks"]

_Call = tuple[tuple[Any, ...], dict[str, Any]]


class StepHooks:
    """Calls functions around each optimizer step that moves the parameters.

    ``before`` comes before the optimizer does anything. ``evaluated`` comes when the gradients of the step are there:
    at once, or, if the loop calls ``optimizer.step(closure)``, after each time that the optimizer calls the closure,
    which computes them. ``after`` comes when the optimizer has moved the values.

    Loops that accumulate gradients do not step, so nothing happens. `torch.amp.GradScaler` leaves a step out when
    gradients overflowed: it does not call most optimizers at all then, and sets ``found_inf`` for the fused ones, which
    is why ``found_inf`` is read here too. If ``step`` of a subclass calls that of its base, torch calls the hooks of
    both, and only the outer call counts.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        before: Callable[[], None],
        evaluated: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        self._before, self._evaluated, self._after = before, evaluated, after
        self._skipped = False
        #: Torch's call of the hooks for the step that is under way. A step that failed may have left its own here.
        self._outer: FrameType | None = None
        self._handles = [optimizer.register_step_pre_hook(self._pre), optimizer.register_step_post_hook(self._post)]

    def remove(self) -> None:
        """Leave the optimizer as it was."""
        for handle in self._handles:
            handle.remove()

    def _pre(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
        caller = sys._getframe(1)
        if self._outer is not None and _called_by(caller, self._outer):
            return None
        self._outer = caller
        found = getattr(optimizer, "found_inf", None)
        self._skipped = found is not None and bool(found.item())
        if self._skipped:
            return None
        self._before()
        return _with_closure(args, kwargs, self._evaluated)

    def _post(self, *_: object) -> None:
        if sys._getframe(1) is not self._outer:
            return
        self._outer = None
        if not self._skipped:
            self._after()


def _with_closure(args: tuple[Any, ...], kwargs: dict[str, Any], evaluated: Callable[[], None]) -> _Call | None:
    """Call the function now; or, if there is a closure, return the call with one that calls it after each evaluation.

    Args:
        args: of the call of ``step``, the optimizer first.
        kwargs: of the same call.
        evaluated: the function.
    """
    closure = kwargs["closure"] if "closure" in kwargs else args[1] if len(args) > 1 else None
    if not callable(closure):
        evaluated()
        return None

    def evaluate() -> Any:
        loss = closure()
        evaluated()
        return loss

    if "closure" in kwargs:
        return args, {**kwargs, "closure": evaluate}
    return (args[0], evaluate, *args[2:]), kwargs


def _called_by(frame: FrameType | None, other: FrameType) -> bool:
    """Whether the one call is part of the other."""
    while frame is not None and frame is not other:
        frame = frame.f_back
    return frame is not None
