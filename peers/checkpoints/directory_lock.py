"""One writer per directory: a lock that the kernel releases when its process dies, for any reason."""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from pathlib import Path

from gossip.errors import GossipError

__all__ = ["DirectoryLock", "Locked"]


class Locked(GossipError):
    """Another process writes into this directory."""


class DirectoryLock:
    """An exclusive lock on a directory: flock on the file ``.lock`` in it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ".lock"
        self._descriptor: int | None = None
        _locks.add(self)

    @property
    def held(self) -> bool:
        """Whether this process has the lock, and of this directory: it may have been removed and made again."""
        try:
            return self._descriptor is not None and os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        except FileNotFoundError:
            return False

    def acquire(self) -> None:
        """Take the lock now. Raises Locked if another process has it, and OSError if the file cannot be made."""
        if self.held:
            return
        self.release()
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise Locked(
                f"another process (pid {owner}) writes into {self._path.parent}: use a separate directory for every "
                "peer, or wait until that process ends"
            ) from error
        except OSError:
            os.close(descriptor)
            raise
        with contextlib.suppress(OSError):  # the pid is only for that message; a full disk has no room for it
            os.ftruncate(descriptor, 0)
            os.write(descriptor, b"%d\n" % os.getpid())
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock. The file stays: without it two writers could each lock a file of their own."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_locks: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


def _forget() -> None:
    # A flock belongs to every fork that has the file open. A data loader's worker may outlive its killed parent by
    # seconds, and must not keep the lock from the restarted peer.
    for lock in _locks:
        lock.release()


os.register_at_fork(after_in_child=_forget)
