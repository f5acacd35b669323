"""The steps of a replica whose moves go to a centre, which holds the model: `parameter-server`."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from gossip.collective.server import CENTRE
from gossip.values.blocks import is_finite
from peers.model.flat_tensors import FlatTensors
from peers.session.session import Session
from peers.steps.collective_steps import CollectiveSteps

__all__ = ["ServerSteps"]

#: Seconds between two looks of a centre that has finished whether the others have finished as well.
_LOOK = 0.05


class ServerSteps(CollectiveSteps):
    """The steps of a worker; those of the centre are the same, without the network."""

    def __init__(self, session: Session, model: torch.nn.Module, warn: Callable[[str], None]) -> None:
        """At the centre, give the model's values to the server; elsewhere, take the model over from it."""
        super().__init__(session)
        self._warn = warn
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        self._flat = FlatTensors([*parameters, *buffers])
        self._parameters = sum(parameter.numel() for parameter in parameters)
        self._is_centre = session.status().me.rank == CENTRE.rank
        self._flat.gather()
        #: The model as it came from the centre last: a move is the difference to it.
        self._had = self._flat.values.copy()
        self._waited = 0.0
        self._send(self._had.copy() if self._is_centre else np.zeros_like(self._had))

    def begin(self) -> None:
        """Do nothing: the optimizer moves the values that came from the centre."""

    def end(self) -> None:
        """Send the move to the centre, and go on from the model that comes back."""
        self._flat.gather()
        move = self._flat.values - self._had
        # Statistics are everybody's estimate of the same quantity: the moves of all together should count as one.
        move[self._parameters :] /= len(self._session.status().members)
        if not is_finite(move):
            self._warn("this step's move is not finite: it is left out, and the model is taken anew from the centre")
            move[:] = 0
        self._send(move)

    def _send(self, move: np.ndarray) -> None:
        began = time.monotonic()
        self._session.reduce(move)
        self._flat.values[:] = move
        self._flat.scatter()
        self._flat.gather()  # rounded to the model's own precision
        self._had[:] = self._flat.values
        self._waited = time.monotonic() - began

    def exchange(self) -> float:
        """Hand the step over, so that news are passed on; return the seconds of waiting for the centre."""
        return self._waited + self._session.step()

    def pause(self) -> None:
        """Do nothing: no worker waits for another one."""

    def catch_up(self) -> None:
        """Take the centre's model over."""
        self._send(np.zeros_like(self._had))

    def close(self) -> None:
        """At the centre, wait until all others have left or died."""
        while self._is_centre and len(self._session.status().members) > 1:
            self._session.driver.check()
            time.sleep(_LOOK)
