"""The line of a step in the metrics. It stays open until the next step begins, for what is logged after the step.

A script may log the loss before ``optimizer.step()`` or after it; both belong to that step. Between two batches of
`Peer.batches` a step begins, and so everything logged since belongs to one step. In a loop of the script's own nobody
says where a step begins. There the names tell: what the open line has already belongs to the next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from peers.reporting.records import Records

__all__ = ["StepLine"]


class StepLine:
    """The line of the last step, and what was logged for the next one."""

    def __init__(self, records: Records) -> None:
        self._records = records
        #: When the last step ended; and its line, until that is written.
        self._ended = 0.0
        self._line: dict[str, Any] | None = None
        self._next: dict[str, Any] = {}
        #: Whether the script's loop says where steps begin: it did for the open line, and has done so for the next one.
        self._told = self._began = False
        #: The loss that was logged last.
        self.loss: Any = None

    def log(self, values: Mapping[str, Any]) -> None:
        """Keep values of the script's, for the step that they belong to."""
        kept = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in values.items()}
        self.loss = kept.get("loss", self.loss)
        if self._line is None or (not self._told and self._line.keys() & kept.keys()):
            self._next.update(kept)
        else:
            self._line.update(kept)

    def begin(self) -> None:
        """Let the next step begin: the line of the last one is complete."""
        self.write()
        self._began = True

    def finish(self, figures: Mapping[str, Any]) -> None:
        """Open the line of a step that has just ended."""
        self.write()
        self._ended = self._records.time()
        self._line, self._next = {**self._next, **figures}, {}
        self._told, self._began = self._began, False

    def write(self) -> None:
        """Write the open line, if there is one."""
        if self._line is not None:
            self._records.step(self._ended, **self._line)
            self._line = None
