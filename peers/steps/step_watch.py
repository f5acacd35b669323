"""Notices a script that trains something else than what it has attached, and tells it once.

Nothing fails then: the loss falls, and the other peers get a model that nobody trains. There are three signs, and each
costs next to nothing:

- The attached optimizer steps, but none of its parameters has a gradient: the model was copied after `attach`.
- Another optimizer moves the parameters of the attached one, which does not step itself.
- Another optimizer moves parameters of the same shapes, those of a copy, and the attached one does not step.

A script may alternate between optimizers, and may adapt a copy of its model for some steps. Hence only many steps of
another optimizer in a row are a sign, or any if the attached optimizer made none until the end.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

__all__ = ["StepWatch"]

#: Steps in a row after which a warning is due: without a gradient, of the same parameters, of a copy's parameters.
_NO_GRADIENT, _SAME, _COPY = 3, 10, 100


class StepWatch:
    """Looks at all steps of optimizers while one optimizer is attached. For the trainer's thread."""

    def __init__(self, optimizer: torch.optim.Optimizer, warn: Callable[[str], None], *, averages: bool) -> None:
        """Begin to look.

        Args:
            optimizer: the one that is attached.
            warn: is called with a sentence that the user should read.
            averages: whether the algorithm averages gradients in the steps of this optimizer, so that any other step
                sets this replica apart.
        """
        self._optimizer, self._warn = optimizer, warn
        self._patience = {"its own parameters": 1 if averages else _SAME, "parameters of the same shapes": _COPY}
        #: Which parameters another optimizer moves, of those that matter here.
        self._kinds: weakref.WeakKeyDictionary[torch.optim.Optimizer, str] = weakref.WeakKeyDictionary()
        #: The steps of others since the last step of the attached optimizer, by kind; and the latest of the others.
        self._others: dict[str, int] = {}
        self._latest = ""
        self._steps = self._without = 0
        self._inside = self._told = False
        #: Another thread may hold another peer.
        self._thread = threading.get_ident()
        self._handle = register_optimizer_step_post_hook(self._stepped)

    def begins(self) -> None:
        """Note that a step of the attached optimizer begins: what steps inside of it belongs to it."""
        self._inside = True

    def evaluated(self) -> None:
        """Look whether the step has any gradient."""
        if any(one.grad is not None for group in self._optimizer.param_groups for one in group["params"]):
            self._without = 0
            return
        self._without += 1
        if self._without == _NO_GRADIENT:
            self._tell(
                f"no parameter of the attached {self._name} had a gradient in {_NO_GRADIENT} steps, so nothing is "
                "trained. Was the model copied, wrapped or loaded anew after peer.attach? Compute the loss with the "
                "very model that was attached"
            )

    def ends(self) -> None:
        """Note that a step of the attached optimizer ends."""
        self._inside = False
        self._steps += 1
        self._others.clear()

    def last_look(self) -> bool:
        """At the end of training, tell if only others stepped; return whether the script was told of its mistake."""
        if not self._steps:
            for kind in self._others:
                self._tell_of(kind)
        return self._told

    def close(self) -> None:
        """Look no more."""
        self._handle.remove()

    def _stepped(self, optimizer: torch.optim.Optimizer, _args: object, _kwargs: object) -> None:
        if self._told or self._inside or optimizer is self._optimizer or threading.get_ident() != self._thread:
            return
        if optimizer not in self._kinds:
            self._kinds[optimizer] = self._kind(optimizer)
        kind = self._kinds[optimizer]
        if kind:
            self._latest = type(optimizer).__name__
            self._others[kind] = self._others.get(kind, 0) + 1
            if self._others[kind] >= self._patience[kind]:
                self._tell_of(kind)

    def _kind(self, optimizer: torch.optim.Optimizer) -> str:
        own, other = _parameters(self._optimizer), _parameters(optimizer)
        if not {id(one) for one in own}.isdisjoint(id(one) for one in other):
            return "its own parameters"
        same = [one.shape for one in own] == [one.shape for one in other]
        return "parameters of the same shapes" if same else ""

    def _tell_of(self, kind: str) -> None:
        self._tell(
            f"another optimizer, {self._latest}, has moved {kind} in {self._others[kind]} steps since the last step of "
            f"the attached {self._name}. Those steps are not gossiped, so this peer trains apart from the others. "
            "Attach the model that is trained, not a copy of it, and call step() of the optimizer that was attached"
        )

    def _tell(self, sentence: str) -> None:
        if not self._told:
            self._told = True
            self._warn(sentence)

    @property
    def _name(self) -> str:
        return type(self._optimizer).__name__


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [one for group in optimizer.param_groups for one in group["params"]]
