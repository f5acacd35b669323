"""The figures of each step for TensorBoard, for those who ask for it: ``tensorboard --logdir RUN`` shows all ranks."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gossip.errors import SettingsError

__all__ = ["TensorBoard", "check_tensorboard"]


def check_tensorboard() -> None:
    """Raise an error that says what to install, if need be; nothing slow is imported."""
    if importlib.util.find_spec("tensorboard") is None:
        raise SettingsError("TensorBoard's files need its package, which is not installed: pip install tensorboard")


class TensorBoard:
    """Writes scalars; a thread of its own puts them on the disk."""

    def __init__(self, directory: Path) -> None:
        """Open the files of one life; TensorBoard joins those of all lives in a directory."""
        from torch.utils.tensorboard import SummaryWriter  # slow, and there only if it is installed

        self._writer: Any = SummaryWriter(str(directory))

    def step(self, time: float, values: Mapping[str, Any]) -> None:
        """Write the numbers of a step's line, and what share of it was waiting."""
        scalars = dict(values)
        step, seconds = scalars.pop("step"), scalars["seconds"]
        scalars["wait_share"] = scalars.pop("wait_seconds") / seconds if seconds > 0 else 0.0
        for name, value in scalars.items():
            number = _number(value)
            if number is not None:
                self._writer.add_scalar(name, number, step, walltime=time)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # nothing that a curve could show
        return None
