"""Snapshots whose content tells their step, for the tests of checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgpack
import torch
import xxhash

from peers.checkpoints.checkpoint import Checkpoints, CheckpointSnapshot

FILES = ["tensors.safetensors", "rest.msgpack", "manifest"]


def snapshot_of(step: int, size: int = 50) -> CheckpointSnapshot:
    tensors = {f"t{index}": torch.full((size + index,), float(step)) for index in range(4)}
    return CheckpointSnapshot(tensors, {"step": step, "copies": [step] * 20})


def step_of(snapshot: CheckpointSnapshot | None) -> int | None:
    """Return which step a snapshot is of, once it is certain that all of it is of that step."""
    if snapshot is None:
        return None
    step = snapshot.extra["step"]
    assert snapshot.extra == {"step": step, "copies": [step] * 20}
    assert sorted(snapshot.tensors) == ["t0", "t1", "t2", "t3"]
    assert all(bool((tensor == step).all()) and tensor.numel() for tensor in snapshot.tensors.values())
    assert isinstance(step, int)
    return step


def filled(directory: Path, *steps: int, keep: int = 3) -> None:
    with Checkpoints(directory, keep=keep, report=raising) as checkpoints:
        for step in steps:
            checkpoints.save(step, snapshot_of(step))
            checkpoints.wait()
        assert checkpoints.saved == len(steps)


def raising(sentence: str) -> None:
    raise AssertionError(sentence)


def forge(
    directory: Path,
    *,
    step: int = 10,
    version: int = 1,
    payload: bytes | None = None,
    change: Callable[[dict[str, list[object]]], object] | None = None,
) -> None:
    """Write a manifest with the right checksums for whatever is in the directory, as an attacker would."""
    files: dict[str, list[object]] = {}
    for name in FILES[:2]:
        content = (directory / name).read_bytes()
        files[name] = [len(content), xxhash.xxh3_128_digest(content)]
    if change is not None:
        change(files)
    content = version.to_bytes(4, "little"), msgpack.packb([step, files]) if payload is None else payload
    checksum = xxhash.xxh3_64_digest(b"".join(content))
    (directory / "manifest").write_bytes(b"GOSSIPCK" + content[0] + checksum + content[1])
