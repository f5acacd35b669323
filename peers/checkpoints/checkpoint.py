"""Checkpoints of one peer: saved in the background, checked when loaded, never in the way of training."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from gossip.errors import GossipError, SettingsError
from peers.checkpoints.checkpoint_directory import CheckpointDirectory
from peers.checkpoints.directory_lock import Locked
from peers.checkpoints.manifest import CheckpointError, Damaged
from peers.state.snapshot import FrozenSnapshot, Snapshot, freeze
from peers.state.storable import StateError

__all__ = ["CheckpointError", "Checkpoints", "Damaged", "Snapshot", "StateError"]

_LOG = logging.getLogger(__name__)
_ADVICE = {
    errno.ENOSPC: "free some space on that disk, or keep fewer checkpoints",
    errno.EDQUOT: "free some of the quota, or keep fewer checkpoints",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "mount it writable, or give another directory",
    errno.EACCES: "let this user read and write there, or give another directory",
    errno.EPERM: "let this user read and write there, or give another directory",
    errno.ENOTDIR: "give a directory, not a path below a file",
    errno.EEXIST: "give a directory, not a file",
}


class Checkpoints:
    """The checkpoints in one directory, which belongs to one peer.

    A save costs the caller one copy of the tensors into CPU memory; a thread writes them. One save at a time: one that
    comes while another is under way is skipped, counted and reported, so that no step ever waits for a disk. For the
    last save of a run, which must not be skipped, call `wait` before and after.

    Errors of the disk never reach the trainer: they are counted and reported, and the checkpoints that were there
    stay. A state that cannot be saved at all (`StateError`) is raised: it is the same on every step, so it shows at
    the first.

    Attributes:
        saved: How many saves are on the disk.
        skipped: How many were not begun, since another was under way.
        failed: How many came to nothing.
    """

    def __init__(self, directory: Path | str, keep: int = 3, report: Callable[[str], None] | None = None) -> None:
        """Make the directory and lock it; if that is impossible, report it and try again with every save.

        Args:
            directory: Where to keep them. It is made if it does not exist.
            keep: How many to keep. The disk needs room for one more.
            report: Is given a sentence about whatever goes wrong, also from the writing thread. Without it the
                sentences are logged as warnings.

        Raises:
            CheckpointError: If somebody else writes into the directory.
        """
        if keep < 1:
            raise SettingsError(f"keep is {keep}: at least one checkpoint must be kept")
        self.saved = self.skipped = self.failed = 0
        self._directory = CheckpointDirectory(Path(directory), keep)
        self._callback = report
        self._thread: threading.Thread | None = None
        self._closed = False
        try:
            self._directory.prepare()
        except Locked as error:
            raise CheckpointError(str(error)) from error
        except OSError as error:
            self._report(f"no checkpoints can be saved: {_explain(error)}")

    def save(self, step: int, snapshot: Snapshot) -> bool:
        """Begin to save; return whether it was begun. Steps do not go down, but for what `load` went back.

        Raises:
            StateError: If the snapshot holds what cannot be saved.
        """
        if self._closed:
            raise CheckpointError("these checkpoints are closed")
        if not 0 <= step < 10**18:
            raise SettingsError(f"there is no step {step}")
        if not self.wait(0):
            self.skipped += 1
            self._report(f"the checkpoint of step {step} is skipped: the one before is still being written")
            return False
        try:
            frozen = freeze(snapshot)
            # Not a daemon: a program that ends finishes its last checkpoint.
            thread = threading.Thread(target=self._write, args=(step, frozen), name="checkpoint")
            thread.start()
        except (MemoryError, RuntimeError) as error:  # no room for the copy, or for a thread
            self._fail(step, error)
            return False
        self._thread = thread
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the save under way, if any; return whether none is any more."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    def load(self) -> Snapshot | None:
        """Return the newest checkpoint that is whole, or None if there is none at all.

        Those that were passed over for damage are reported, and removed once the next save is in place.

        Raises:
            CheckpointError: If all are damaged, if the directory cannot be read, or if one is of a later version.
        """
        self.wait()
        try:
            return self._directory.read(self._report)
        except FileNotFoundError:
            return None
        except OSError as error:
            # Not None: a run that has checkpoints must not begin anew because a disk was not mounted properly.
            raise CheckpointError(f"no checkpoints can be loaded: {_explain(error)}") from error

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, whole or not, oldest first."""
        return [place.step for place in self._directory.places()]

    def close(self) -> None:
        """Wait for the save under way, and let others write into the directory."""
        self.wait()
        self._closed = True
        self._directory.release()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, step: int, frozen: FrozenSnapshot) -> None:
        try:
            self._directory.prepare()
            self._directory.write(step, frozen)
        except Exception as error:  # noqa: BLE001  (whatever it is, training goes on, and the error is not lost)
            self._fail(step, error)
            return
        self.saved += 1
        try:
            self._directory.remove_old()
        except OSError as error:
            self._report(f"old checkpoints cannot be removed: {_explain(error)}")

    def _fail(self, step: int, error: Exception) -> None:
        self.failed += 1
        self._report(f"the checkpoint of step {step} is not saved, and training goes on: {_explain(error)}")

    def _report(self, sentence: str) -> None:
        try:
            (self._callback or _LOG.warning)(sentence)
        except Exception:  # noqa: BLE001  (the caller's; it must not end a training step either)
            _LOG.warning("the callback for reports on checkpoints failed on: %s", sentence, exc_info=True)


def _explain(error: Exception) -> str:
    if isinstance(error, GossipError):
        return str(error)
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; {_ADVICE.get(error.errno or 0, 'the next save tries again')}"
