"""One snapshot in one directory: complete and checked, or not there.

    step-00000123/tensors.safetensors    the tensors
    step-00000123/rest.msgpack           everything else
    step-00000123/manifest               sizes and checksums

A snapshot is written under a name with a dot, flushed to the disk, and only then renamed. So after a crash a directory
with a valid name is complete. Checksums detect any other damage of the disk. Nothing is ever unpickled.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from peers.checkpoints.manifest import (
    FILES,
    MANIFEST,
    REST,
    TENSORS,
    Damaged,
    check_files,
    damage,
    read_regular,
    write_manifest,
)
from peers.state.snapshot import REST_LIMIT, CheckpointSnapshot, FrozenSnapshot, thaw
from peers.state.storable import StateError

__all__ = ["read_snapshot", "write_snapshot"]


def write_snapshot(temporary: Path, final: Path, step: int, frozen: FrozenSnapshot) -> None:
    """Write into ``temporary`` and rename it to ``final``; neither exists. After an OSError nothing is left."""
    try:
        temporary.mkdir()
        _save_tensors(frozen.tensors, temporary / TENSORS)
        (temporary / REST).write_bytes(frozen.rest)
        # safetensors lets only the owner read; here the umask decides.
        (temporary / TENSORS).chmod(stat.S_IMODE((temporary / REST).stat().st_mode))
        write_manifest(temporary, step)
        for name in (*FILES, MANIFEST):
            _sync(temporary / name)
        _sync(temporary)
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(final.parent)


def read_snapshot(directory: Path, step: int) -> CheckpointSnapshot:
    """Read and check a snapshot.

    Raises:
        Damaged: If a file is missing, changed, or not of this step.
        CheckpointError: If a later version of this program wrote it.
    """
    check_files(directory, step)
    with damage(directory):
        try:
            return thaw(FrozenSnapshot(_load_tensors(directory / TENSORS), read_regular(directory / REST, REST_LIMIT)))
        except StateError as error:
            raise Damaged(directory / REST, str(error)) from error


def _save_tensors(tensors: dict[str, torch.Tensor], path: Path) -> None:
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        # The error number is only in the text; callers need an OSError to distinguish errors.
        if (number := re.search(r"\(os error (\d+)\)", str(error))) is not None:
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        raise


def _load_tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            # Copies: safetensors returns views of the mapped file, which would keep it on the disk after its removal.
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  (not a dict)
    except (SafetensorError, TypeError) as error:  # torch raises TypeError for shapes beyond 64 bits
        raise Damaged(path, str(error).partition("\n")[0]) from error


def _sync(path: Path) -> None:
    # Directories are synced as well: otherwise a rename in them may be lost when the power fails.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
