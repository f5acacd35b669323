"""The manifest of a checkpoint: its files, their sizes and checksums; and safe ways to read files.

    manifest    8 bytes GOSSIPCK, 4 bytes version, 8 bytes xxh3_64 of version and payload,
                payload: msgpack [step, {file: [bytes, xxh3_128]}]

Checksums find accidental damage. They are not signatures: a process that can write into the directory can forge them.
So names are never taken from the manifest, lengths are never trusted, and links are never followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import xxhash

from gossip.errors import GossipError
from gossip.version import CHECKPOINT as VERSION

__all__ = [
    *("FILES", "MANIFEST", "REST", "TENSORS", "VERSION"),
    *("CheckpointError", "Damaged", "check_files", "damage", "read_regular", "write_manifest"),
]

TENSORS, REST, MANIFEST = "tensors.safetensors", "rest.msgpack", "manifest"
FILES = (TENSORS, REST)
_MAGIC = b"GOSSIPCK"
_HEADER = len(_MAGIC) + 4 + 8
_MANIFEST_LIMIT = 4096
_CHUNK = 2**24
#: The file is missing, a link, or not a file; the disk cannot read it; and 0 for errors that this module raises.
_DAMAGE = {errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EIO, 0}


class CheckpointError(GossipError):
    """Checkpoints cannot be used in this way; the message says what to do."""


class Damaged(CheckpointError):
    """A checkpoint is damaged; the message names the file and what is wrong with it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")


@contextlib.contextmanager
def damage(path: Path) -> Iterator[None]:
    """Turn the errors that mean damage into `Damaged`. Others, such as too many open files, are raised unchanged."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DAMAGE:
            raise
        raise Damaged(path, error.strerror or str(error)) from error


def write_manifest(directory: Path, step: int) -> None:
    """Write the sizes and checksums of a checkpoint's files."""
    files = {}
    for name in FILES:
        size = (directory / name).stat().st_size
        files[name] = [size, _checksum(directory / name, size)]
    version, payload = VERSION.to_bytes(4, "little"), msgpack.packb([step, files])
    (directory / MANIFEST).write_bytes(_MAGIC + version + xxhash.xxh3_64_digest(version + payload) + payload)


def check_files(directory: Path, step: int) -> None:
    """Compare the files of a checkpoint with its manifest.

    Raises:
        Damaged: If a file is missing, changed, or not of this step.
        CheckpointError: If a later version of this program wrote it.
    """
    for name, (size, checksum) in _read_manifest(directory / MANIFEST, step).items():
        path = directory / name
        with damage(path):
            found = _checksum(path, size)
        if found != checksum:
            raise Damaged(path, "the checksum does not match: the file was changed")


def read_regular(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes. Raises OSError for any other."""
    with os.fdopen(_open(path), "rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > limit:
            raise OSError(0, f"the file is longer than {limit} bytes", str(path))
        return file.read(size)


def _read_manifest(path: Path, step: int) -> dict[str, list[Any]]:
    with damage(path):
        data = read_regular(path, _MANIFEST_LIMIT)
    version, checksum, payload = data[8:12], data[12:_HEADER], data[_HEADER:]
    if not data.startswith(_MAGIC) or len(data) < _HEADER:
        raise Damaged(path, "this is not a manifest")
    # This part of the layout never changes: a later version must be distinguished from damage.
    if xxhash.xxh3_64_digest(version + payload) != checksum:
        raise Damaged(path, "the checksum does not match: the file was changed")
    if (number := int.from_bytes(version, "little")) > VERSION:
        raise CheckpointError(
            f"{path.parent} has format {number}, and this program reads formats up to {VERSION}: update the program, "
            "or use another directory"
        )
    try:
        content = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise Damaged(path, f"not msgpack: {type(error).__name__} {error}".rstrip()) from error
    if not isinstance(content, list) or len(content) != 2 or type(content[0]) is not int:
        raise Damaged(path, "this is not a manifest")
    written, files = content
    if not isinstance(files, dict) or files.keys() != set(FILES) or not all(map(_is_entry, files.values())):
        raise Damaged(path, f"the manifest does not list exactly {' and '.join(FILES)}")
    if written != step:
        raise Damaged(path, f"the manifest is of step {written}, not of step {step}")
    return files


def _is_entry(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and type(entry[0]) is int and type(entry[1]) is bytes


def _open(path: Path) -> int:
    # Not blocking, so that a named pipe in place of a file is refused at once.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "this is not a regular file", str(path))
    return descriptor


def _checksum(path: Path, expected: int) -> bytes:
    """Return the checksum of a file that must have ``expected`` bytes."""
    with os.fdopen(_open(path), "rb", buffering=0) as file:
        if (size := os.fstat(file.fileno()).st_size) != expected:
            raise OSError(0, f"the file has {size} bytes instead of {expected}", str(path))
        checksum = xxhash.xxh3_128()
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
        return checksum.digest()
