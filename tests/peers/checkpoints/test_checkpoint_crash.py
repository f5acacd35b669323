"""Checkpoints when processes die, disks are full or closed, and two want the same directory."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkpoint_cases import filled, raising, snapshot_of, step_of

import peers.checkpoints.checkpoint
import peers.checkpoints.snapshot_files
from peers.checkpoints.checkpoint import CheckpointError, Checkpoints

pytestmark = pytest.mark.timeout(240)

SUPPORT = Path(__file__).parents[2] / "support"


def scenario(name: str, directory: Path) -> Any:
    path = os.pathsep.join([str(SUPPORT), str(SUPPORT.parent.parent)])
    command = [sys.executable, str(SUPPORT / "checkpoint_process.py"), name, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_at_any_point_of_a_save_a_whole_checkpoint_is_there(tmp_path: Path) -> None:
    results = scenario("killed_at_every_point", tmp_path / "c")
    assert len(results) > 30
    for result in results:
        assert result["code"] == -9
        assert (result["reports"], result["hidden"], result["after"]) == ([], [], 100), result
    loaded = [result["loaded"] for result in results]
    assert loaded == sorted(loaded), "once the new one is in place it stays"
    assert set(loaded) == {2, 3}
    left = {name.split("-")[0] + "-" + name.split("-")[1] for result in results for name in result["left"][1:]}
    assert ".step-00000003.tmp" in left, "some died in the middle of writing"
    assert ".step-00000001.tmp" in left, "and some in the middle of removing"


def test_killed_at_any_time_nothing_is_lost_that_was_acknowledged(tmp_path: Path) -> None:
    results = scenario("killed_at_any_time", tmp_path / "c")
    assert len(results) == 15
    for result in results:
        assert result["code"] == -9
        assert result["acknowledged"] <= result["loaded"] <= result["acknowledged"] + 1
        assert (result["reports"], result["hidden"], result["after"]) == ([], [], 100), result


def test_a_disk_without_room_costs_the_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    (*full, again), look = scenario("file_size_limit", tmp_path / "c")
    assert [entry["limit"] for entry in full] == [0, 10, 300, 400, 1000, 100_000]
    for entry in full:
        assert (entry["saved"], entry["failed"]) == (0, 1)
        assert entry["left"] == [".lock", "step-00000001"]
        (report,) = entry["reports"]
        assert report.startswith("the checkpoint of step 2 was not saved, and training continues: ")
        assert os.strerror(errno.EFBIG) in report
        assert "ulimit -f" in report
    assert (again["saved"], again["failed"], again["reports"]) == (1, 0, [])
    assert look["loaded"] == 3


def test_a_directory_that_may_only_be_read(tmp_path: Path) -> None:
    result, left = scenario("foreign_directory", tmp_path / "c")
    assert (result["saved"], result["failed"], result["loaded"]) == (0, 1, 1)
    assert [report.split(":")[0] for report in result["reports"]] == [
        "no checkpoints can be saved",
        "the checkpoint of step 2 was not saved, and training continues",
    ]
    assert all("Permission denied; let this user read and write there" in report for report in result["reports"])
    assert left == [".lock", "step-00000001"]


def test_a_second_writer_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    beside, after, loaded = scenario("two_writers", tmp_path / "c")
    assert "another process (pid FIRST) writes into" in beside
    assert isinstance(after, dict), after
    assert after["saved"] == 1
    assert loaded == 2


def test_two_writers_in_one_process_are_refused_as_well(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError, match=r"another process \(pid"):
            Checkpoints(tmp_path)
        assert checkpoints.save(1, snapshot_of(1))
    filled(tmp_path, 2)


def test_a_path_below_a_file_is_reported_with_every_save_and_mended_when_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    reports: list[str] = []
    with Checkpoints(tmp_path / "file" / "checkpoints", report=reports.append) as checkpoints:
        for step in (1, 2):
            assert checkpoints.save(step, snapshot_of(step))
            checkpoints.wait()
        with pytest.raises(CheckpointError, match="no checkpoints can be loaded"):
            checkpoints.load()
        assert (checkpoints.saved, checkpoints.failed, len(reports)) == (0, 2, 3)
        assert all("Not a directory; give a directory" in report for report in reports)
        assert (tmp_path / "file").read_text() == "in the way"
        (tmp_path / "file").unlink()
        checkpoints.save(3, snapshot_of(3))
        assert step_of(checkpoints.load()) == 3


def test_a_directory_that_vanishes_during_the_run_is_made_and_locked_again(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "c", report=raising) as checkpoints:
        checkpoints.save(1, snapshot_of(1))
        checkpoints.wait()
        shutil.rmtree(tmp_path / "c")
        checkpoints.save(2, snapshot_of(2))
        assert step_of(checkpoints.load()) == 2
        with pytest.raises(CheckpointError, match=r"another process \(pid"):
            Checkpoints(tmp_path / "c")
    assert checkpoints.saved == 2


def test_a_directory_that_somebody_else_made_anew_is_theirs(tmp_path: Path) -> None:
    reports: list[str] = []
    with Checkpoints(tmp_path / "c", report=reports.append) as first:
        shutil.rmtree(tmp_path / "c")
        with Checkpoints(tmp_path / "c", report=raising) as second:
            second.save(1, snapshot_of(1))
            first.save(2, snapshot_of(2))
            first.wait()
            assert step_of(second.load()) == 1
        assert (first.saved, first.failed, len(reports)) == (0, 1, 1)
        assert "another process (pid" in reports[0]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), ValueError("?"), MemoryError()], ids=repr)
def test_whatever_goes_wrong_in_writing_is_counted_and_leaves_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    filled(tmp_path, 1)

    def fail(*_: Any) -> None:
        raise error

    reports: list[str] = []
    with Checkpoints(tmp_path, report=reports.append) as checkpoints:
        with monkeypatch.context() as patch:
            patch.setattr(peers.checkpoints.snapshot_files, "write_manifest", fail)
            checkpoints.save(2, snapshot_of(2))
            checkpoints.wait()
        assert checkpoints.failed == len(reports) == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step-00000001"]
        assert step_of(checkpoints.load()) == 1


def test_no_memory_for_the_copy_is_counted_and_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't allocate memory")

    reports: list[str] = []
    monkeypatch.setattr(peers.checkpoints.checkpoint, "freeze", fail)
    with Checkpoints(tmp_path, report=reports.append) as checkpoints:
        assert not checkpoints.save(1, snapshot_of(1))
    assert checkpoints.failed == 1
    assert "can't allocate memory" in reports[0]


def test_a_callback_that_raises_ends_neither_the_save_nor_the_trainer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("the callback is broken")

    (tmp_path / "file").touch()
    with Checkpoints(tmp_path / "file" / "c", report=fail) as checkpoints:
        checkpoints.save(1, snapshot_of(1))
    assert checkpoints.failed == 1
    assert "the callback is broken" in caplog.text
    assert "Not a directory" in caplog.text


def test_without_a_callback_it_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path, 1, 2)
    (tmp_path / "step-00000002" / "manifest").unlink()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.load()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "step-00000002/manifest: No such file" in caplog.text


def test_an_error_that_says_nothing_of_the_disk_is_no_reason_to_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 1, 2)

    def fail(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with Checkpoints(tmp_path) as checkpoints:
        monkeypatch.setattr("peers.checkpoints.manifest._open", fail)
        with pytest.raises(CheckpointError, match="no checkpoints can be loaded: Too many open files"):
            checkpoints.load()
