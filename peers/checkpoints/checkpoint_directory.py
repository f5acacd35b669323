"""The directory of one peer's checkpoints: which are there, which is next, which go. No threads, no mercy on errors."""

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
from peers.state.snapshot import FrozenSnapshot, Snapshot

__all__ = ["CheckpointDirectory", "Place"]

_NAME = re.compile(r"step-(\d{8,18})(?:-([1-9]\d{0,5}))?")
_TEMPORARY = re.compile(r"\.step-[\d-]+\.tmp-\d+")


class Place(NamedTuple):
    """A checkpoint by name. One that is saved again for the same step (after damage, say) is a further attempt."""

    step: int
    attempt: int

    def __str__(self) -> str:
        return f"step-{self.step:08d}" + (f"-{self.attempt}" if self.attempt else "")


class CheckpointDirectory:
    """Checkpoints by step. The newest is found by looking, so there is no pointer that could be wrong."""

    def __init__(self, path: Path, keep: int) -> None:
        self._path = path
        self._keep = keep
        self._lock = DirectoryLock(path)
        self._passed_over: set[Place] = set()

    def prepare(self) -> None:
        """Make the directory, lock it, and remove what writers that died have left. OSError or Locked."""
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
        """Return what is there by its name, whole or not, oldest first."""
        found = []
        with os.scandir(self._path) as entries:
            for entry in entries:
                if (match := _NAME.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False):
                    place = Place(int(match[1]), int(match[2] or 0))
                    if str(place) == entry.name:  # not 000000001 for 00000001
                        found.append(place)
        return sorted(found)

    def write(self, step: int, frozen: FrozenSnapshot) -> None:
        """Put a checkpoint in place. It must be the newest: CheckpointError if a later step is there already."""
        places = self.places()
        newest = max((place for place in places if place not in self._passed_over), default=None)
        if newest is not None and step < newest.step:
            # Of another run, or of this one and not loaded. To remove it would lose work, and to keep it
            # would load it instead of this one.
            raise CheckpointError(
                f"{self._path} holds step {newest.step} already: load it first, or give another directory"
            )
        place = Place(step, max((place.attempt + 1 for place in places if place.step == step), default=0))
        write_snapshot(self._temporary(place), self._path / str(place), step, frozen)

    def read(self, report: Callable[[str], None]) -> Snapshot | None:
        """Return the newest that is whole, None if there is none at all.

        What is passed over for damage is reported, no longer counts, and goes with the next `remove_old`.

        Raises:
            CheckpointError: If all are damaged, or one is of a later version.
        """
        places = self.places()
        damages: dict[Place, str] = {}
        for place in reversed(places):
            try:
                snapshot = read_snapshot(self._path / str(place), place.step)
            except Damaged as error:
                damages[place] = str(error)
                report(f"a checkpoint is damaged and passed over: {error}")
            else:
                self._passed_over = set(damages)
                return snapshot
        if places:
            raise CheckpointError(
                f"all checkpoints in {self._path} are damaged; move the directory away to begin anew: "
                + "; ".join(damages.values())
            )
        return None

    def remove_old(self) -> None:
        """Remove all but the newest, and what was passed over. OSError."""
        places = self.places()
        kept = [place for place in places if place not in self._passed_over][-self._keep :]
        for place in sorted(set(places) - set(kept)):
            # Renamed first: a removal that is cut short must not leave half a checkpoint under a good name.
            temporary = self._temporary(place)
            (self._path / str(place)).rename(temporary)
            shutil.rmtree(temporary)
        self._passed_over = set()

    def release(self) -> None:
        """Let others write here."""
        self._lock.release()

    def _temporary(self, place: Place) -> Path:
        return self._path / f".{place}.tmp-{os.getpid()}"
