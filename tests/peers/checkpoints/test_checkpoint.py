"""Checkpoints: saved whole in the background, kept and removed in order, found again after a restart."""

from __future__ import annotations

import gc
import os
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_cases import filled, raising, snapshot_of, step_of
from safetensors.torch import load_file

import peers.checkpoints.checkpoint
import peers.checkpoints.snapshot_files
from gossip.errors import SettingsError
from peers.checkpoints.checkpoint import CheckpointError, Checkpoints, CheckpointSnapshot, StateError
from peers.state.random_states import capture_random_states, restore_random_states
from peers.state.state_dicts import flatten, unflatten


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_directory_without_checkpoints_has_none(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "new" / "deep", report=raising) as checkpoints:
        assert checkpoints.load() is None
        assert checkpoints.steps() == []


def test_the_newest_comes_back_and_the_oldest_go(tmp_path: Path) -> None:
    for last in range(1, 8):
        filled(tmp_path, last * 5, keep=2)
        expected = [f"step-{step:08d}" for step in (last * 5 - 5, last * 5) if step]
        assert names(tmp_path) == [".lock", *expected]
        with Checkpoints(tmp_path, report=raising) as checkpoints:
            assert step_of(checkpoints.load()) == last * 5


def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    tied = torch.randn(3, 4)
    tensors = {
        "a": tied,
        "b": tied,
        "half": torch.randn(5).bfloat16().t(),
        "none": torch.empty(0, 2),
        "scalar": tied[0, 0],
    }
    extra = {"w": [0.1, 1.0], "betas": (0.9, 0.999), 3: None, "big": 2**100, "text": "\u20ac\udc80", "bytes": b"\xff"}
    with Checkpoints(tmp_path, report=raising) as checkpoints:
        assert checkpoints.save(1, CheckpointSnapshot(tensors, extra))
        loaded = checkpoints.load()
    assert loaded is not None
    assert loaded.extra == extra
    assert [type(value) for value in loaded.extra.values()] == [type(value) for value in extra.values()]
    assert loaded.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded.tensors[name].dtype == tensor.dtype
        assert torch.equal(loaded.tensors[name], tensor)
    assert loaded.tensors["a"] is loaded.tensors["b"]
    # Other programs can read it, and tied weights are there once.
    assert load_file(tmp_path / "step-00000001" / "tensors.safetensors").keys() == tensors.keys() - {"b"}


def test_what_the_trainer_does_after_save_is_not_in_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Event()
    hold(monkeypatch, begin)
    snapshot = snapshot_of(1)
    with Checkpoints(tmp_path, report=raising) as checkpoints:
        checkpoints.save(1, snapshot)
        for tensor in snapshot.tensors.values():
            tensor.fill_(99)
        snapshot.extra["copies"].clear()
        snapshot.tensors.clear()
        begin.set()
        assert step_of(checkpoints.load()) == 1


def test_who_may_read_a_checkpoint_is_for_the_umask_to_say(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        filled(tmp_path, 1)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "step-00000001").iterdir()}
    assert modes == dict.fromkeys(["tensors.safetensors", "rest.msgpack", "manifest"], 0o640)


def hold(monkeypatch: pytest.MonkeyPatch, until: threading.Event) -> None:
    """Let no writing begin before the event."""
    save_file = peers.checkpoints.snapshot_files.save_file

    def held(*args: Any, **kwargs: Any) -> None:
        assert until.wait(60)
        save_file(*args, **kwargs)

    monkeypatch.setattr(peers.checkpoints.snapshot_files, "save_file", held)


def test_a_save_during_another_is_skipped_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = threading.Event()
    hold(monkeypatch, begin)
    reports: list[str] = []
    with Checkpoints(tmp_path, report=reports.append) as checkpoints:
        assert checkpoints.save(1, snapshot_of(1))
        assert not checkpoints.wait(0)
        assert not checkpoints.save(2, snapshot_of(2))
        assert not checkpoints.save(3, snapshot_of(3))
        begin.set()
        assert checkpoints.wait(60)
        assert checkpoints.save(4, snapshot_of(4))
    assert (checkpoints.saved, checkpoints.skipped, checkpoints.failed) == (2, 2, 0)
    assert [sentence.split(":")[0] for sentence in reports] == [
        f"the checkpoint of step {n} is skipped" for n in (2, 3)
    ]
    assert names(tmp_path) == [".lock", "step-00000001", "step-00000004"]


def test_all_is_on_the_disk_before_it_has_its_name_and_the_name_before_the_old_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 1)
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noted_fsync(descriptor: int) -> None:
        events.append("sync " + os.path.relpath(Path(f"/proc/self/fd/{descriptor}").readlink(), tmp_path))
        fsync(descriptor)

    def noted_rename(self: Path, target: Path) -> Path:
        events.append(f"rename {self.name} {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    filled(tmp_path, 2, keep=1)
    new, old = (f".step-0000000{step}.tmp-{os.getpid()}" for step in (2, 1))
    files = [f"sync {new}/{name}" for name in ("manifest", "rest.msgpack", "tensors.safetensors")]
    assert sorted(events[:3]) == files
    assert events[3:] == [f"sync {new}", f"rename {new} step-00000002", "sync .", f"rename step-00000001 {old}"]


def test_the_same_step_again_replaces_it_only_once_it_is_there(tmp_path: Path) -> None:
    filled(tmp_path, 7, 7, 7, keep=1)
    assert names(tmp_path) == [".lock", "step-00000007-2"]
    filled(tmp_path, 7, 8, keep=3)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.steps() == [7, 7, 8]
        assert step_of(checkpoints.load()) == 8


def test_steps_are_numbers_not_text(tmp_path: Path) -> None:
    filled(tmp_path, 99_999_999, 100_000_000, 10**17)
    (tmp_path / f"step-0{10**16}").mkdir()  # not how we write that
    (tmp_path / "step-5").mkdir()
    with Checkpoints(tmp_path, report=raising) as checkpoints:
        assert checkpoints.steps() == [99_999_999, 100_000_000, 10**17]
        assert step_of(checkpoints.load()) == 10**17


def test_a_later_step_of_another_run_is_neither_removed_nor_hidden(tmp_path: Path) -> None:
    filled(tmp_path, 100)
    reports: list[str] = []
    with Checkpoints(tmp_path, keep=1, report=reports.append) as checkpoints:
        checkpoints.save(5, snapshot_of(5))
        checkpoints.wait()
        assert checkpoints.failed == 1
        assert "already has a checkpoint of step 100, which is later than step 5: load it first, or use " in reports[0]
        assert names(tmp_path) == [".lock", "step-00000100"]


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        (
            CheckpointSnapshot(extra={"data": {"position": [object()]}}),
            r"extra\['data'\]\['position'\]\[0\] is a builtins.object",
        ),
        (CheckpointSnapshot(extra={"model": {"w": torch.zeros(1)}}), r"extra.model.w is a tensor"),
        (CheckpointSnapshot(tensors={"m": torch.zeros(1, device="meta")}), r"tensors\['m'\] is on the device meta"),
        (CheckpointSnapshot(tensors={"m": 3}), r"tensors\['m'\] is a int"),  # type: ignore[dict-item]
        (CheckpointSnapshot(tensors={"__metadata__": torch.zeros(1)}), "cannot be the name of a tensor"),
        (CheckpointSnapshot(tensors={"\udc80": torch.zeros(1)}), "cannot be the name of a tensor"),
        (CheckpointSnapshot(tensors={3: torch.zeros(1)}), "tensors: 3 cannot be the name of a tensor"),  # type: ignore[dict-item]
        (CheckpointSnapshot(extra={"order": b"x" * (64 * 2**20)}), "put long lists among the tensors"),
    ],
    ids=["object", "tensor", "meta", "int", "metadata", "surrogate", "key", "long"],
)
def test_a_state_that_cannot_be_saved_is_an_error_at_once(
    tmp_path: Path, snapshot: CheckpointSnapshot, message: str
) -> None:
    with Checkpoints(tmp_path, report=raising) as checkpoints:
        with pytest.raises(StateError, match=message):
            checkpoints.save(1, snapshot)
        assert checkpoints.load() is None
        assert checkpoints.failed == checkpoints.saved == 0


def test_settings_that_cannot_be_meant(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="keep must be 1 or more"):
        Checkpoints(tmp_path, keep=0)
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(SettingsError, match="step must be 0 or more, not -1"):
        checkpoints.save(-1, snapshot_of(1))
    with pytest.raises(CheckpointError, match="closed"):
        checkpoints.save(1, snapshot_of(1))


def test_a_program_that_ends_or_closes_finishes_its_last_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = threading.Event()
    hold(monkeypatch, begin)
    checkpoints = Checkpoints(tmp_path, report=raising)
    checkpoints.save(1, snapshot_of(1))
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "checkpoint"] == [False]
    begin.set()
    checkpoints.close()
    assert checkpoints.saved == 1


def test_the_loaded_tensors_do_not_hold_on_to_the_file(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with Checkpoints(tmp_path) as checkpoints:
        loaded = checkpoints.load()
    assert loaded is not None
    gc.collect()
    assert "step-00000001" not in Path("/proc/self/maps").read_text()


class Run:
    """A training run that keeps all its state in itself and in the global random generators."""

    def __init__(self) -> None:
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(7)
        layers = torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.4), torch.nn.Linear(16, 1)
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, amsgrad=True)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.02, total_steps=60)
        self.losses: list[float] = []

    def step(self) -> None:
        batch = torch.randn(8, 6) * random.random() + float(np.random.randn())
        self.optimizer.zero_grad()
        loss = (self.model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.losses.append(loss.item())

    def snapshot(self) -> CheckpointSnapshot:
        optimizer, structure = flatten(self.optimizer.state_dict(), "optimizer")
        extra = {
            "optimizer": structure,
            "scheduler": self.scheduler.state_dict(),
            "random": capture_random_states("cpu"),
        }
        return CheckpointSnapshot({**self.model.state_dict(), **optimizer}, {**extra, "losses": self.losses})

    def restore(self, snapshot: CheckpointSnapshot) -> None:
        self.model.load_state_dict({name: snapshot.tensors[name] for name in self.model.state_dict()})
        self.optimizer.load_state_dict(unflatten(snapshot.tensors, snapshot.extra["optimizer"]))
        self.scheduler.load_state_dict(snapshot.extra["scheduler"])
        self.losses = snapshot.extra["losses"]
        restore_random_states(snapshot.extra["random"], "cpu")


@pytest.mark.parametrize("seed", range(3))
def test_an_interrupted_run_equals_the_uninterrupted_bit_for_bit(tmp_path: Path, seed: int) -> None:
    whole = Run()
    for _ in range(40):
        whole.step()

    interrupted = Run()
    at = random.Random(seed).randrange(1, 40)
    with Checkpoints(tmp_path, report=raising) as checkpoints:
        for step in range(1, 40):
            interrupted.step()
            if step == at:
                checkpoints.save(step, interrupted.snapshot())  # goes on training while that is written

    resumed = Run()
    resumed.step()  # anything: all of it must be replaced
    with Checkpoints(tmp_path, report=raising) as checkpoints:
        snapshot = checkpoints.load()
    assert snapshot is not None
    resumed.restore(snapshot)
    assert len(resumed.losses) == at
    while len(resumed.losses) < 40:
        resumed.step()
    assert resumed.losses == whole.losses
    expected, found = whole.snapshot(), resumed.snapshot()
    assert found.extra == expected.extra
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert torch.equal(found.tensors[name], tensor), name
