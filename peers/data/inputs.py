"""The inputs of the model in its first steps, as a number: peers that draw the same batches have the same one.

A peer does not see the batches of a foreign loader. But it sees what its model is called with. A hook is there for a
few steps only, from the end of the first step on. So it takes no part in what scripts do with a model before they train
it: compile, copy, trace or store it. Nothing is left of it afterwards.

The number is evidence. There is none in inputs that are always the same (a benchmark, or the whole data set in each
step) or that come again within these steps (a data set of a few batches).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from peers.data.fingerprints import rows_hash, tensors_in
from topologies.draws import draw

__all__ = ["NO_EVIDENCE", "STEPS", "Inputs"]

#: The steps that are looked at. Two peers that draw one of only eight samples in each step, each in an order of its
#: own, draw the same in all of these once in 40,000 runs.
STEPS = 8
#: Stands for inputs that were looked at, and of which nothing can be said.
NO_EVIDENCE = 1


class Inputs:
    """The inputs of one model. For the trainer's thread."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._handle: RemovableHandle | None = None
        self._steps: list[int] = []
        #: The different calls of the present step: a closure may call the model again with the same batch.
        self._calls: set[int] = set()
        #: Whether a call could not be seen.
        self._unseen = False
        #: Takes in what the model is called with.
        self.see: Callable[[Any], None] = self._see

    @property
    def through(self) -> bool:
        """Whether all steps that are looked at are over."""
        return len(self._steps) == STEPS

    @property
    def constant(self) -> bool:
        """Whether the inputs of all these steps were the same."""
        return self.through and not self._unseen and len(set(self._steps)) == 1

    @property
    def digest(self) -> int:
        """The number that stands for the inputs, once all steps are over; `NO_EVIDENCE` if it would prove nothing."""
        proves = not self._unseen and len(set(self._steps)) == STEPS
        return max(draw(*self._steps), NO_EVIDENCE + 1) if proves else NO_EVIDENCE

    def step_over(self) -> bool:
        """Note that a step of the optimizer has ended; return whether this was the last one to look at."""
        if self._handle is None:
            self._begin()
            return False
        self._unseen = self._unseen or not self._calls
        self._steps.append(draw(*sorted(self._calls)))
        self._calls = set()
        if self.through:
            self.close()
        return self.through

    def close(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.remove()
        _watched.pop(self._model, None)

    def _see(self, arguments: Any) -> None:
        """Take in what the model is called with."""
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():  # no value can be read now
            self._unseen = True
            return
        try:
            hashes = [rows_hash(tensor, key) for key, tensor in enumerate(tensors_in(arguments))]
        except Exception:  # noqa: BLE001 - such as tensors without values: a look must not end the training
            self._unseen = True
            return
        if hashes:
            self._calls.add(draw(*hashes))

    def _begin(self) -> None:
        _watched[self._model] = self
        # Where `torch.compile` calls the model, the hook would be compiled as well, and would see nothing.
        skip = getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None)
        if skip is not None:
            skip(_look.__code__)
            self.see = torch.compiler.disable(self._see)  # type: ignore[no-untyped-call]
        self._handle = self._model.register_forward_pre_hook(_look, with_kwargs=True)


#: The models that are looked at. A copy of one has the hook too, and is not in here.
_watched: weakref.WeakKeyDictionary[torch.nn.Module, Inputs] = weakref.WeakKeyDictionary()


def _look(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """See what a model is called with, if it is for training. A plain function, so that it can be copied and stored."""
    if torch.compiler.is_compiling():  # within a graph: it stays whole, and this part of it is empty
        return
    found = _watched.get(module)
    if found is None or not torch.is_grad_enabled():
        return
    found.see((args, kwargs))
