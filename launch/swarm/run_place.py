"""Whether a directory holds a run: asked on each machine before anything is started there, so it imports little."""

from __future__ import annotations

from pathlib import Path

__all__ = ["used"]


def used(run_dir: Path) -> bool:
    """Whether peers have written into a directory. One that is empty, or holds other things, can be a run's."""
    return any(run_dir.glob("rank-*"))
