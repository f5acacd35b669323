"""Where gossip enters a training loop: before and after every step of the user's optimizer."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["StepHooks"]


class StepHooks:
    """Calls ``before`` and ``after`` around each optimizer step that moves the parameters.

    Loops that accumulate gradients do not step, so nothing happens. `torch.amp.GradScaler` leaves a step out when
    gradients overflowed: it does not call most optimizers at all then, and sets ``found_inf`` for the fused ones, which
    is why ``found_inf`` is read here too.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._before, self._after = before, after
        self._skipped = False
        self._handles = [
            optimizer.register_step_pre_hook(lambda one, *_: self._pre(one)),
            optimizer.register_step_post_hook(lambda *_: self._post()),
        ]

    def remove(self) -> None:
        """Leave the optimizer as it was."""
        for handle in self._handles:
            handle.remove()

    def _pre(self, optimizer: torch.optim.Optimizer) -> None:
        found = getattr(optimizer, "found_inf", None)
        self._skipped = found is not None and bool(found.item())
        if not self._skipped:
            self._before()

    def _post(self) -> None:
        if not self._skipped:
            self._after()
