"""The GPUs of this machine, shared out among its peers: each peer sees one, so that no framework uses several."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = ["gpu_for", "visible_gpus"]

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_PROC = Path("/proc/driver/nvidia/gpus")
#: Seconds for nvidia-smi, which is slow on a machine whose driver has just been loaded.
_PATIENCE = 20.0


def gpu_for(local_rank: int, device: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variable that lets a peer see its GPU; nothing without GPUs, or if the user named a device.

    Args:
        local_rank: the number of the peer on its machine. With more peers than GPUs, several peers share one.
        device: the setting of the peer; ``auto`` unless the user named a device.
        environment: of the process that starts the peer. A list of GPUs in it is the one to share out.
    """
    gpus = visible_gpus(environment) if device == "auto" else []
    return {_VISIBLE: gpus[local_rank % len(gpus)]} if gpus else {}


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of the GPUs that programs on this machine may use, without importing torch."""
    if _VISIBLE in environment:
        names = [name.strip() for name in environment[_VISIBLE].split(",")]
        # As CUDA reads the list: an invalid name ends it.
        end = next((place for place, name in enumerate(names) if not name or name.startswith("-")), len(names))
        return names[:end]
    program = shutil.which("nvidia-smi", path=environment.get("PATH"))
    known = list(_PROC.iterdir()) if _PROC.is_dir() else []
    return [str(number) for number in range(len(known) if program is None else _listed_by(program))]


@cache  # it takes up to a second, and is asked for each peer
def _listed_by(program: str) -> int:
    try:
        done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())
