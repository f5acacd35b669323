"""One launcher for a swarm, and one launch for a run directory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import Capture, failure

import launch.swarm.launching
from launch.cli import main
from launch.options.options import LaunchOptions
from launch.swarm.launching import planned
from launch.swarm.one_launcher import check_one_launcher
from launch.swarm.run_place import claimed
from launch.user_errors import CommandError

COMMAND = (sys.executable, "train.py", "--rate", "0.1 0.2")


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        (
            {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1", "PMI_SIZE": "3"},
            "Type: srun -n 3 python train.py --rate '0.1 0.2'. If you",
        ),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "Type: torchrun --nproc-per-node 2 train.py --rate '0.1 0.2'."),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "mpirun starts 4 launchers"),
        ({"PMI_SIZE": "4"}, "Type: gossip launch -n 4 ... once, without mpirun"),
    ],
)
def test_a_launcher_among_many_is_refused_with_the_line_to_type(environment: dict[str, str], line: str) -> None:
    with pytest.raises(CommandError, match="each would start a swarm of its own") as caught:
        check_one_launcher(COMMAND, environment)
    assert line in str(caught.value)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        # The script of sbatch --ntasks=3, and the shell of salloc: many tasks are allowed, one runs.
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "3", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "3", "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"},
        {"WORLD_SIZE": "3"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"OMPI_COMM_WORLD_SIZE": "1", "PMI_SIZE": "x"},
    ],
)
def test_a_launcher_that_is_alone_may_launch(environment: dict[str, str]) -> None:
    check_one_launcher(COMMAND, environment)


def test_the_command_refuses_and_can_be_told_otherwise(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "3")
    assert f"Type: srun -n 3 python {script}" in failure(capsys, "launch", "-n", "2", str(script))
    assert main(["launch", "--each-task", "--dry-run", str(script)]) == 0


def test_two_launches_do_not_share_a_run_directory(capsys: Capture, tmp_path: Path) -> None:
    script, run = tmp_path / "train.py", tmp_path / "run"
    script.touch()
    (run / "rank-0").mkdir(parents=True)
    arguments = ["launch", "--resume", "--run-dir", str(run), str(script)]
    with claimed(run) as free:
        assert free
        assert f"another gossip launch uses {run}: choose another --run-dir" in failure(capsys, *arguments)
    with claimed(run) as free:
        assert free, "the claim ended"


def test_launches_of_one_second_have_directories_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch.swarm.launching.time, "strftime", lambda _: "runs/now")
    options = LaunchOptions("train.py")
    plan, _ = planned(options)
    found = []
    monkeypatch.setattr(launch.swarm.launching, "_run", lambda plan, *_: found.append(plan.run_dir.name) or 0)
    plans = iter([plan])
    monkeypatch.setattr(launch.swarm.launching, "planned", lambda one, *_: (next(plans, None) or planned(one)[0], None))
    with claimed(plan.run_dir):  # by another launch that planned the same
        assert launch.swarm.launching.launch(options) == 0
    assert found == ["now-2"]


def test_a_launch_that_starts_nothing_leaves_no_directory(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "one"
    with pytest.raises(KeyboardInterrupt), claimed(run):
        raise KeyboardInterrupt
    assert not (tmp_path / "runs").exists()
    run.mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt), claimed(run):
        raise KeyboardInterrupt
    assert run.exists(), "the user made it"


def test_a_run_directory_that_cannot_be_one_is_refused(capsys: Capture, tmp_path: Path) -> None:
    script, file = tmp_path / "train.py", tmp_path / "file"
    script.touch()
    file.touch()
    for run in (file, file / "below"):
        said = failure(capsys, "launch", "--run-dir", str(run), str(script))
        assert f"cannot write to the run directory {run}: " in said
