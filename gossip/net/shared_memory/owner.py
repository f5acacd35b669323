"""Memory that other processes on this host can read: what parcels to them are copied into.

Each piece is a file that lives in memory and has no name (memfd), so that nothing is left behind however a process
ends. It is sealed: it can neither shrink nor grow, so that who maps it is never struck by a page that is not there.

    first page   generation (8 bytes, little-endian), then nothing
    then         the values

When may the memory be written to again? When nobody here refers to it, which `gossip.values.pool` knows, and nobody
elsewhere reads it, which the kernel knows: every reader holds a shared lock on the file (flock) for as long as it
reads, and whoever is killed holds none. The owner tries for the exclusive lock, and under it writes the next
generation. A reference names the generation that it is about, and a reader compares it once it has its lock. So a
reference that arrives late, whatever delayed it, finds another generation and is discarded; and nobody has to say
that they are done.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import secrets
import struct
import weakref
from typing import NamedTuple

import numpy as np

from gossip.values.memory import Memory

__all__ = [
    "NAME",
    "OFFSET",
    "REFERENCE_BYTES",
    "SEALS",
    "SMALLEST",
    "Reference",
    "SharedMemory",
    "create",
    "find",
]

#: Of the files, as /proc shows it: who is asked to read any other file will not.
NAME = "gossip"
#: Smaller pieces are not worth a file, nor a look into another process.
SMALLEST = 64 << 10
#: Where the values start: on a page of their own.
OFFSET = mmap.PAGESIZE
#: Only Linux has them; elsewhere `create` fails, and memory is plain.
SEALS = sum(getattr(fcntl, f"F_SEAL_{what}", 0) for what in ("SHRINK", "GROW", "SEAL"))
_GENERATION = struct.Struct("<Q")
_REFERENCE = struct.Struct("<IIQQQ")
#: The size of a reference.
REFERENCE_BYTES = _REFERENCE.size


class Reference(NamedTuple):
    """Says where in the memory of which process something is."""

    pid: int
    fd: int
    inode: int
    #: The generation; of a question, what to answer.
    mark: int
    #: The length of the values; of a question, where to answer.
    extent: int

    def pack(self) -> bytes:
        """Return it as a frame."""
        return _REFERENCE.pack(*self)

    @classmethod
    def unpack(cls, frame: bytes | memoryview) -> Reference | None:
        """Read a frame; None if it is not one of ours. Any numbers may be in it."""
        return cls(*_REFERENCE.unpack(frame)) if len(frame) == _REFERENCE.size else None


class _Piece:
    """A file that values are in. It does not refer to the `Memory` that is handed out, so as not to keep it."""

    def __init__(self, fd: int, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self._pid = os.getpid()
        self.fd = fd
        self.inode = os.fstat(fd).st_ino
        # Not from 0: a reference to a file that happens to have the number of this one does not fit either.
        self.generation = 1 + secrets.randbelow(1 << 62)
        self._write(self.generation)

    def advance(self) -> bool:
        """End the present generation, unless somebody still reads it."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        self.generation += 1
        self._write(self.generation)
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        return True

    def give_up(self, place: int) -> None:
        """Close the file; who still reads it may go on, and who has it mapped learns that there will be no more."""
        _pieces.pop(place, None)
        if os.getpid() == self._pid:  # a fork's copy of us has no say
            self._write(0)
        os.close(self.fd)

    def reference(self, length: int) -> Reference:
        """Return what others find the values by."""
        return Reference(self._pid, self.fd, self.inode, self.generation, length)

    def _write(self, generation: int) -> None:
        _GENERATION.pack_into(self._mapping, 0, generation)


#: All there are, by where the values start. As addresses are, it is the process's, not any one transport's.
_pieces: dict[int, _Piece] = {}


class SharedMemory:
    """Memory that other processes can read; once there is a lot of it, plain memory."""

    def __init__(self, most: int | None = None) -> None:
        """Share at most ``limit`` pieces at a time, by default what takes a quarter of this process's descriptors."""
        # Two for each: Python's mapping keeps one of its own.
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8 if most is None else most

    def allocate(self, nbytes: int) -> Memory:
        """Return new memory."""
        if nbytes < SMALLEST or len(_pieces) >= self._most:
            return np.empty(nbytes, np.uint8)
        try:
            fd, mapping = create(NAME, OFFSET + nbytes)
        except OSError:  # no room, no descriptors, or no such system call
            return np.empty(nbytes, np.uint8)
        memory: Memory = np.frombuffer(mapping, np.uint8, nbytes, OFFSET)
        piece = _pieces[memory.ctypes.data] = _Piece(fd, mapping)
        weakref.finalize(memory, piece.give_up, memory.ctypes.data).atexit = False
        return memory

    def reclaim(self, memory: Memory) -> bool:
        """Whether nobody in any process reads it; then no reference to it is good any more."""
        piece = _pieces.get(memory.ctypes.data)
        return piece is None or piece.advance()


def create(name: str, size: int) -> tuple[int, mmap.mmap]:
    """Return a new file in memory, sealed, and its mapping; raise an `OSError` if there can be none."""
    if not (SEALS and hasattr(os, "memfd_create")):
        raise OSError(errno.ENOSYS, "this system has no sealed files in memory")
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        return fd, mmap.mmap(fd, size)
    except BaseException:
        os.close(fd)
        raise


def find(place: int, length: int) -> Reference | None:
    """Return the reference to values at an address, if they lie in shared memory."""
    piece = _pieces.get(place)
    return piece.reference(length) if piece is not None else None
