"""Checkpoints of one peer: saved in the background, checked when loaded, never delaying or stopping training."""

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
from peers.state.snapshot import CheckpointSnapshot, FrozenSnapshot, freeze
from peers.state.storable import StateError

__all__ = ["CheckpointError", "CheckpointSnapshot", "Checkpoints", "Damaged", "StateError"]

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

    A save costs the caller one copy of the tensors into CPU memory; a thread writes them. There is one save at a time.
    A save that is requested during another one is skipped, counted and reported, so that no step ever waits for a disk.
    For the last save of a run, which must not be skipped, call `wait` before and after.

    Errors of the disk never reach the trainer: they are counted and reported, and the earlier checkpoints stay. For a
    state that cannot be saved, `save` raises `StateError`: the error is the same on every step, so it shows at the
    first.

    Attributes:
        saved: The number of saves that are on the disk.
        skipped: The number of saves that were skipped, because another one was being written.
        failed: The number of saves that failed.
    """

    def __init__(self, directory: Path | str, keep: int = 3, report: Callable[[str], None] | None = None) -> None:
        """Make the directory and lock it. If that is impossible, report it and try again with every save.

        Args:
            directory: The directory of the checkpoints. It is made if it does not exist.
            keep: The number of checkpoints to keep. The disk needs room for one more.
            report: Called with a sentence about each failure, also from the writing thread. Without it the sentences
                are logged as warnings.

        Raises:
            CheckpointError: If another process writes into the directory.
        """
        if keep < 1:
            raise SettingsError(f"keep must be 1 or more checkpoints, not {keep}")
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

    def save(self, step: int, snapshot: CheckpointSnapshot) -> bool:
        """Begin a save; return whether it began. Steps must not decrease, except after a `load`.

        Raises:
            StateError: If the snapshot has content that cannot be saved.
        """
        if self._closed:
            raise CheckpointError(f"the checkpoint of step {step} cannot be saved: these checkpoints are closed")
        if not 0 <= step < 10**18:
            raise SettingsError(f"step must be 0 or more, not {step}")
        if not self.wait(0):
            self.skipped += 1
            self._report(f"the checkpoint of step {step} is skipped: the one before is still being written")
            return False
        try:
            frozen = freeze(snapshot)
            # Not a daemon thread: a program that ends finishes its last checkpoint.
            thread = threading.Thread(target=self._write, args=(step, frozen), name="checkpoint")
            thread.start()
        except (MemoryError, RuntimeError) as error:  # no room for the copy, or for a thread
            self._fail(step, error)
            return False
        self._thread = thread
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the present save, if any; return whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    def load(self, newest: int | None = None) -> CheckpointSnapshot | None:
        """Return the newest undamaged checkpoint, or None if there are no checkpoints.

        Damaged checkpoints are reported and skipped, and removed after the next save.

        Args:
            newest: the latest step that may be loaded; later ones are skipped like damaged ones. None: any.

        Raises:
            CheckpointError: If all are damaged, if the directory cannot be read, or if one is of a later version.
        """
        self.wait()
        try:
            return self._directory.read(self._report, newest)
        except FileNotFoundError:
            return None
        except OSError as error:
            # Not None: a run that has checkpoints must not start from the beginning because a disk was not mounted.
            raise CheckpointError(f"no checkpoints can be loaded: {_explain(error)}") from error

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, damaged or not, oldest first."""
        return [place.step for place in self._directory.places()]

    def close(self) -> None:
        """Wait for the present save, and unlock the directory."""
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
        except Exception as error:  # noqa: BLE001  (training continues after any error, and the error is reported)
            self._fail(step, error)
            return
        self.saved += 1
        try:
            self._directory.remove_old()
        except OSError as error:
            self._report(f"old checkpoints cannot be removed: {_explain(error)}")

    def _fail(self, step: int, error: Exception) -> None:
        self.failed += 1
        self._report(f"the checkpoint of step {step} was not saved, and training continues: {_explain(error)}")

    def _report(self, sentence: str) -> None:
        try:
            (self._callback or _LOG.warning)(sentence)
        except Exception:  # noqa: BLE001  (an error of the caller's function must not end a training step either)
            _LOG.warning("the callback for reports on checkpoints failed on: %s", sentence, exc_info=True)


def _explain(error: Exception) -> str:
    if isinstance(error, GossipError):
        return str(error)
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; {_ADVICE.get(error.errno or 0, 'the next save tries again')}"
