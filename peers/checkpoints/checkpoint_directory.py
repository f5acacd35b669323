"""The directory of one peer's checkpoints: listing, writing, reading and removing. No threads; errors are raised."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from peers.checkpoints.directory_lock import DirectoryLock
from peers.checkpoints.manifest import CheckpointError, Damaged
from peers.checkpoints.snapshot_files import read_snapshot, write_snapshot
from peers.state.snapshot import CheckpointSnapshot, FrozenSnapshot

__all__ = ["CheckpointDirectory", "Place"]

_NAME = re.compile(r"step-(\d{8,18})(?:-([1-9]\d{0,5}))?")
_TEMPORARY = re.compile(r"\.step-[\d-]+\.tmp-\d+")


class Place(NamedTuple):
    """The name of a checkpoint. A second checkpoint of the same step, for example after damage, is another attempt."""

    step: int
    attempt: int

    def __str__(self) -> str:
        return f"step-{self.step:08d}" + (f"-{self.attempt}" if self.attempt else "")


class CheckpointDirectory:
    """Checkpoints by step. The newest is found by listing the directory, so there is no pointer that could be wrong."""

    def __init__(self, path: Path, keep: int) -> None:
        self._path = path
        self._keep = keep
        self._lock = DirectoryLock(path)
        self._passed_over: set[Place] = set()

    def prepare(self) -> None:
        """Make the directory, lock it, and remove the leftovers of writers that died. Raises OSError or Locked."""
        if not self._lock.held:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        with os.scandir(self._path) as entries:
            leftovers = [entry for entry in entries if _TEMPORARY.fullmatch(entry.name)]
        for entry in leftovers:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()

    def places(self) -> list[Place]:
        """Return the checkpoints in the directory, damaged or not, oldest first."""
        found = []
        with os.scandir(self._path) as entries:
            for entry in entries:
                if (match := _NAME.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False):
                    place = Place(int(match[1]), int(match[2] or 0))
                    if str(place) == entry.name:  # not 000000001 for 00000001
                        found.append(place)
        return sorted(found)

    def write(self, step: int, frozen: FrozenSnapshot) -> None:
        """Write a checkpoint. Raises CheckpointError if the directory has a later step already."""
        places = self.places()
        newest = max((place for place in places if place not in self._passed_over), default=None)
        if newest is not None and step < newest.step:
            # The later step is of another run, or of this one and not loaded. If it were removed, work would be lost.
            # If it were kept, it would be loaded instead of this one.
            raise CheckpointError(
                f"{self._path} already has a checkpoint of step {newest.step}, which is later than step {step}: load "
                "it first, or use another directory"
            )
        place = Place(step, max((place.attempt + 1 for place in places if place.step == step), default=0))
        write_snapshot(self._temporary(place), self._path / str(place), step, frozen)

    def read(self, report: Callable[[str], None], newest: int | None = None) -> CheckpointSnapshot | None:
        """Return the newest undamaged checkpoint up to a step, or None if there are no checkpoints.

        Damaged checkpoints are reported, no longer count, and are removed by the next `remove_old`.

        Raises:
            CheckpointError: If all are damaged, or one is of a later version.
        """
        places = self.places()
        damages: dict[Place, str] = {}
        later = {place for place in places if newest is not None and place.step > newest}
        for place in reversed([place for place in places if place not in later]):
            try:
                snapshot = read_snapshot(self._path / str(place), place.step)
            except Damaged as error:
                damages[place] = str(error)
                report(f"a damaged checkpoint was skipped: {error}")
            else:
                self._passed_over = {*damages, *later}
                return snapshot
        if damages:
            raise CheckpointError(
                f"all checkpoints in {self._path} are damaged; move the directory away to start from the beginning: "
                + "; ".join(damages.values())
            )
        return None

    def remove_old(self) -> None:
        """Remove all but the newest checkpoints, and the damaged ones. Raises OSError."""
        places = self.places()
        kept = [place for place in places if place not in self._passed_over][-self._keep :]
        for place in sorted(set(places) - set(kept)):
            # Renamed first: an interrupted removal must not leave half a checkpoint under a valid name.
            temporary = self._temporary(place)
            (self._path / str(place)).rename(temporary)
            shutil.rmtree(temporary)
        self._passed_over = set()

    def release(self) -> None:
        """Unlock the directory."""
        self._lock.release()

    def _temporary(self, place: Place) -> Path:
        return self._path / f".{place}.tmp-{os.getpid()}"
