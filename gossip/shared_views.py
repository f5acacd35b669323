"""Reads the shared memory of other processes on this host; see `gossip.shared_memory`.

What a reference says is hostile until shown otherwise. Nothing is opened but a file in memory of our own user that bears
our name; nothing is mapped that could shrink, or that is larger than any parcel; nothing is written to but a board.
Who could fake all of that runs as the same user on the same host, and could write into this process as well.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import stat
import struct
import weakref
from collections import OrderedDict

import numpy as np

from gossip.shared_memory import NAME, OFFSET, SEALS, Memory, Reference

__all__ = ["BOARD", "Views"]

#: The name of files that others may write to; see `gossip.sharing`.
BOARD = f"{NAME}-board"
_PROCESSES = "/proc"
_WORD = struct.Struct("<Q")


class Views:
    """What is read of others' memory. All calls are one thread's; but what was handed out is let go of in any."""

    def __init__(self, largest: int) -> None:
        """Refuse files for values of more than ``largest`` bytes."""
        self._largest = largest
        # A mapping that is kept costs one descriptor, and so does each view.
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8
        #: Mappings by device and inode, which no other file has for as long as it is mapped; the latest used is last.
        self._mappings: OrderedDict[tuple[int, int], tuple[int, mmap.mmap]] = OrderedDict()
        #: Descriptors that hold the locks of views. Adding and discarding are atomic.
        self._locks: set[int] = set()
        #: References that were thrown away.
        self.refused = 0

    def open(self, reference: Reference) -> memoryview | None:
        """Return the values, read-only; None if they are not there any more, never were, or may not be read."""
        try:
            fd = self._open(reference, NAME, os.O_RDONLY)
        except OSError:
            self.refused += 1
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            mapping = self._mapping(fd, reference)
            if _WORD.unpack_from(mapping)[0] != reference.mark:
                raise OSError("the memory is used for something else by now")
            view: Memory = np.frombuffer(mapping, np.uint8, reference.extent, OFFSET)
        except (OSError, ValueError):
            os.close(fd)
            self.refused += 1
            return None
        if len(self._locks) >= self._most:
            copy = memoryview(view.tobytes())
            os.close(fd)
            return copy
        self._locks.add(fd)
        weakref.finalize(view, _let_go, fd, self._locks, os.getpid()).atexit = False
        return view.data

    def answer(self, question: Reference) -> None:
        """Write to the board what the question says: this is how others learn that this process can read them."""
        try:
            fd = self._open(question, BOARD, os.O_RDWR)
        except OSError:
            self.refused += 1
            return
        try:
            os.pwrite(fd, _WORD.pack(question.mark), question.extent * _WORD.size)
        except (OSError, OverflowError):
            self.refused += 1
        finally:
            os.close(fd)

    def sweep(self) -> None:
        """Let go of mappings whose owners have given them up or ended."""
        gone = {pid for pid, _ in self._mappings.values() if not os.path.exists(f"{_PROCESSES}/{pid}")}  # noqa: PTH110
        for key, (pid, mapping) in list(self._mappings.items()):
            if pid in gone or not _WORD.unpack_from(mapping)[0]:
                del self._mappings[key]

    def close(self) -> None:
        """Let go of all that nobody looks at; views that were handed out stay good."""
        self._mappings.clear()

    def _open(self, reference: Reference, name: str, mode: int) -> int:
        path = f"{_PROCESSES}/{reference.pid}/fd/{reference.fd}"
        # Before it is opened: to open a device may do something.
        if os.readlink(path) != f"/memfd:{name} (deleted)":
            raise OSError("no memory of ours")
        fd = os.open(path, mode | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        found = os.fstat(fd)
        try:
            if found.st_ino != reference.inode or found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
                raise OSError("another file than was meant")
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS != SEALS or found.st_size > OFFSET + self._largest:
                raise OSError("it could shrink, or is too large")
        except OSError:
            os.close(fd)
            raise
        return fd

    def _mapping(self, fd: int, reference: Reference) -> mmap.mmap:
        found = os.fstat(fd)
        if not 0 < reference.extent <= found.st_size - OFFSET:
            raise OSError("beyond the end")
        key = found.st_dev, found.st_ino
        if key not in self._mappings:
            self.sweep()
            while len(self._mappings) >= self._most:
                self._mappings.popitem(last=False)
            mapping = mmap.mmap(fd, found.st_size, prot=mmap.PROT_READ)
            self._mappings[key] = reference.pid, mapping
        self._mappings.move_to_end(key)
        return self._mappings[key][1]


def _let_go(fd: int, locks: set[int], pid: int) -> None:
    """Unlock and close, in whichever thread."""
    if os.getpid() == pid:  # in a fork's copy the lock is still the other's
        locks.discard(fd)
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
