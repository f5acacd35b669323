"""The figures of each step for TensorBoard, on request: ``tensorboard --logdir RUN`` shows all ranks."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gossip.errors import SettingsError
from peers.reporting.numbers import as_number

__all__ = ["TensorBoard", "check_tensorboard"]


def check_tensorboard() -> None:
    """Raise a `SettingsError` if TensorBoard is not installed. The check imports nothing slow."""
    if importlib.util.find_spec("tensorboard") is None:
        raise SettingsError("tensorboard=true needs a package that is not installed: pip install tensorboard")


class TensorBoard:
    """Writes scalars; a separate thread puts them on the disk."""

    def __init__(self, directory: Path) -> None:
        """Open the files of one life; TensorBoard joins those of all lives in a directory."""
        from torch.utils.tensorboard import SummaryWriter  # slow, and an optional dependency

        self._writer: Any = SummaryWriter(str(directory))

    def step(self, time: float, values: Mapping[str, Any]) -> None:
        """Write the numbers of a step's line, and the share of the step that was spent waiting."""
        scalars = dict(values)
        step, seconds = scalars.pop("step"), scalars["seconds"]
        scalars["wait_share"] = scalars.pop("wait_seconds") / seconds if seconds > 0 else 0.0
        for name, value in scalars.items():
            number = as_number(value)
            if number is not None:
                self._writer.add_scalar(name, number, step, walltime=time)

    def close(self) -> None:
        """Write the remaining scalars, and close the files."""
        self._writer.close()
