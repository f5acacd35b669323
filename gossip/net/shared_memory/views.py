"""Reads the shared memory of other processes on this host; see `gossip.net.shared_memory.owner`.

What a reference says is hostile until shown otherwise. Nothing is opened but a file in memory of our own user that
bears our name; nothing is mapped that could shrink, or that is larger than any parcel; nothing is written to but a
board. A process that could fake all of that runs as the same user on the same host, and could write into this process
as well.

Each view has a lock of its own, which ends with it. Mappings are kept, since to map a piece costs about as much as to
copy it, until their owner has given the memory up or ended. They are no memory of ours, but count as resident.
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
from pathlib import Path

import numpy as np

from gossip.net.shared_memory.owner import NAME, OFFSET, SEALS, Reference
from gossip.values.memory import Memory

__all__ = ["BOARD", "Views"]

#: The name of files that others may write to; see `gossip.net.shared_memory.sharing`.
BOARD = f"{NAME}-board"
_PROCESSES = "/proc"
_WORD = struct.Struct("<Q")


class Views:
    """What is read of others' memory. All calls are one thread's; but what was handed out is let go of in any."""

    def __init__(self, largest: int, most: int | None = None) -> None:
        """Refuse files for values of more than ``largest`` bytes; beyond ``most`` views at a time, make copies."""
        self._largest = largest
        # One descriptor for the lock of a view, and one that Python's mapping keeps.
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8 if most is None else most
        #: Mappings, with the process that they are of, by device and inode: no other file has these for as long as
        #: this one is mapped. The latest used is the last.
        self._mappings: OrderedDict[tuple[int, int], tuple[int, mmap.mmap]] = OrderedDict()
        #: Descriptors that hold the locks of views. Adding and discarding are atomic.
        self._locks: set[int] = set()
        #: References that were discarded.
        self.refused = 0

    @property
    def held(self) -> int:
        """How many views somebody still has."""
        return len(self._locks)

    @property
    def nbytes(self) -> int:
        """How much of others' memory is mapped here."""
        return sum(len(mapping) for _, mapping in self._mappings.values())

    def open(self, reference: Reference) -> memoryview | None:
        """Return the values, read-only; None if they are not there any more, never were, or may not be read."""
        try:
            fd = self._open(reference, NAME, os.O_RDONLY)
        except OSError:
            self.refused += 1
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            view = self._mapped(fd, reference)
        except (OSError, ValueError):
            _let_go(fd, self._locks, os.getpid())
            self.refused += 1
            return None
        if len(self._locks) >= self._most:
            copy = view.tobytes()
            _let_go(fd, self._locks, os.getpid())
            return memoryview(copy)
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
        except (OSError, OverflowError):  # beyond the end, which the seal does not let us move
            self.refused += 1
        finally:
            os.close(fd)

    def sweep(self) -> None:
        """Let go of mappings whose owners have given them up or ended; of the latter some may be overlooked."""
        ended = {pid for pid, _ in self._mappings.values() if not Path(_PROCESSES, str(pid)).exists()}
        for key, (pid, mapping) in list(self._mappings.items()):
            if pid in ended or mapping[: _WORD.size] == bytes(_WORD.size):
                del self._mappings[key]

    def close(self) -> None:
        """Let go of everything but the views that somebody still has, which stay good."""
        self._mappings.clear()

    def _open(self, reference: Reference, name: str, mode: int) -> int:
        path = f"{_PROCESSES}/{reference.pid}/fd/{reference.fd}"
        # Before it is opened: to open a device may do something.
        if os.readlink(path) != f"/memfd:{name} (deleted)":  # noqa: PTH115 - it is text, not a path
            raise OSError("no memory of ours")
        fd = os.open(path, mode | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            if found.st_ino != reference.inode or found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
                raise OSError("another file than was meant")
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS != SEALS:
                raise OSError("it could shrink")
        except OSError:
            os.close(fd)
            raise
        return fd

    def _mapped(self, fd: int, reference: Reference) -> Memory:
        """Return the values in a file that is locked."""
        found = os.fstat(fd)
        if found.st_size > OFFSET + self._largest or not 0 < reference.extent <= found.st_size - OFFSET:
            raise OSError("too large, or beyond the end")
        key = found.st_dev, found.st_ino
        if key not in self._mappings:
            self.sweep()
            while len(self._mappings) >= self._most:
                self._mappings.popitem(last=False)
            self._mappings[key] = reference.pid, mmap.mmap(fd, found.st_size, prot=mmap.PROT_READ)
        self._mappings.move_to_end(key)
        _, mapping = self._mappings[key]
        if mapping[: _WORD.size] != _WORD.pack(reference.mark):
            raise OSError("the memory is used for something else by now")
        view: Memory = np.frombuffer(mapping, np.uint8, reference.extent, OFFSET)
        return view


def _let_go(fd: int, locks: set[int], pid: int) -> None:
    """Unlock and close, in whichever thread.

    Both, since to close one of several duplicates does not unlock: a mapping keeps one of the descriptor that it was
    made with, and a fork of all.
    """
    if os.getpid() == pid:  # in a fork's copy the lock is still the other's
        locks.discard(fd)
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
