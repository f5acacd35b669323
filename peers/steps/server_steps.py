"""The steps of a replica whose moves go to a centre, which holds the model: `parameter-server`."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from gossip.collective.server import CENTRE
from gossip.values.blocks import is_finite
from peers.model.flat_tensors import FlatTensors
from peers.session.session import Engine
from peers.steps.collective_steps import Collective

__all__ = ["Serving"]

#: How often a centre that is through looks whether the others are as well.
_LOOK = 0.05


class Serving(Collective):
    """A worker's steps; the centre's are the same, without the network."""

    def __init__(self, engine: Engine, model: torch.nn.Module, tell: Callable[[str], None]) -> None:
        """Make the centre's values the model, or take the model over from there."""
        super().__init__(engine)
        self._tell = tell
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        self._flat = FlatTensors([*parameters, *buffers])
        self._parameters = sum(parameter.numel() for parameter in parameters)
        self._is_centre = engine.core.me == CENTRE
        self._flat.gather()
        #: The model as we had it last: a move is the difference.
        self._had = self._flat.values.copy()
        self._waited = 0.0
        self._exchange(self._had.copy() if self._is_centre else np.zeros_like(self._had))

    def begin(self) -> None:
        """Do nothing: the optimizer moves what we were given."""

    def end(self) -> None:
        """Send the move, and go on from what the model is then."""
        self._flat.gather()
        move = self._flat.values - self._had
        # Statistics are everybody's guess of the same thing; the moves of all together should count as one.
        move[self._parameters :] /= len(self._engine.core.view.members)
        if not is_finite(move):
            self._tell("this step's move is not finite: it is left out, and the model is taken anew from the centre")
            move[:] = 0
        self._exchange(move)

    def _exchange(self, move: np.ndarray) -> None:
        began = time.monotonic()
        self._engine.reduce(move)
        self._flat.values[:] = move
        self._flat.scatter()
        self._flat.gather()  # as the model's own precision has it
        self._had[:] = self._flat.values
        self._waited = time.monotonic() - began

    def exchange(self) -> float:
        """Hand the step over, for the news."""
        return self._waited + self._engine.step()

    def pause(self) -> None:
        """Do nothing: nobody waits for anybody."""

    def catch_up(self) -> None:
        """Take the model over as it is now."""
        self._exchange(np.zeros_like(self._had))

    def close(self) -> None:
        """At the centre, wait until all others are through, or dead."""
        while self._is_centre and len(self._engine.core.view.members) > 1:
            self._engine.driver.check()
            time.sleep(_LOOK)
