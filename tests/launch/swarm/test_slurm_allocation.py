"""The allocation of a Slurm job as a list of hosts. The variables are those that Slurm 22.05 sets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import Capture, failure

from launch.cli import main
from launch.options.options import LaunchOptions
from launch.swarm import slurm_allocation
from launch.swarm.hostfile import HostLine
from launch.swarm.slurm_allocation import agent_command, allocation, requeued
from launch.user_errors import CommandError

BATCH = {
    "SLURM_JOB_ID": "5",
    "SLURM_JOB_NODELIST": "n[0-2]",
    "SLURM_NTASKS": "5",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
    "SLURM_PROCID": "0",
}


def slots(environment: dict[str, str]) -> list[tuple[str, int]]:
    return [(line.host, line.slots) for line in allocation(environment)]


def test_a_node_takes_as_many_peers_as_tasks_were_asked_for() -> None:
    assert slots(BATCH) == [("n0", 2), ("n1", 2), ("n2", 1)]
    assert {line.job for line in allocation(BATCH)} == {"5"}
    assert [line.advertise for line in allocation(BATCH)] == ["n0", "n1", "n2"]


@pytest.mark.parametrize(
    ("more", "number"),
    [
        ({}, 1),
        ({"SLURM_GPUS_PER_NODE": "4"}, 4),
        ({"SLURM_GPUS_PER_NODE": "a100:2"}, 2),
        ({"SLURM_GPUS_ON_NODE": "3"}, 3),
        ({"SLURM_GPUS_PER_NODE": "a100:2,h100:1"}, 1),
        ({"SLURM_GPUS_PER_NODE": "0"}, 1),
    ],
)
def test_without_tasks_it_takes_one_for_each_gpu_or_one(more: dict[str, str], number: int) -> None:
    environment = {**BATCH, "SLURM_TASKS_PER_NODE": "1(x3)", **more}
    del environment["SLURM_NTASKS"]
    assert slots(environment) == [(f"n{node}", number) for node in range(3)]


@pytest.mark.parametrize(
    "environment", [{}, {"SLURM_JOB_ID": "5"}, {**BATCH, "SLURM_STEP_ID": "0"}, {"SLURM_JOB_NODELIST": "n0"}]
)
def test_elsewhere_there_is_no_allocation(environment: dict[str, str]) -> None:
    assert allocation(environment) == []


def test_the_shell_of_salloc_is_in_the_allocation() -> None:
    assert len(allocation({**BATCH, "SLURM_STEP_ID": str(0xFFFFFFFA)})) == 3


@pytest.mark.parametrize("tasks", ["", "2", "2(x3),1", "2(x2),0", "many", "2(x2),1,"])
def test_tasks_that_do_not_fit_the_nodes_are_named(tasks: str) -> None:
    with pytest.raises(CommandError, match=re.escape(f"SLURM_TASKS_PER_NODE={tasks!r} does not say") + ".*--hostfile"):
        allocation({**BATCH, "SLURM_TASKS_PER_NODE": tasks})


def test_the_plan_has_the_nodes_of_the_allocation(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in BATCH.items():
        monkeypatch.setenv(name, text)
    script = tmp_path / "train.py"
    script.touch()
    assert main(["launch", "--dry-run", "--exclude", "n1:1", str(script)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("rank ")] == [
        "rank 0: n0, local rank 0",
        "rank 1: n0, local rank 1",
        "rank 2: n1, local rank 0",
        "rank 3: n2, local rank 0",
    ]
    assert "encrypted, with a new key for each peer" in lines
    # Who says how many, or wants a swarm for itself, gets peers here.
    for options in (["-n", "2"], ["--each-task"]):
        assert main(["launch", "--dry-run", *options, str(script)]) == 0
        assert "rank 0: localhost, local rank 0" in capsys.readouterr().out
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-")
    assert "is not a list of hosts" in failure(capsys, "launch", "--dry-run", str(script))


def test_srun_gets_nothing_of_what_the_job_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {**BATCH, "SLURM_CPUS_PER_TASK": "4", "SLURM_CONF": "/etc/slurm.conf", "HOME": "/h"}.items():
        monkeypatch.setenv(name, text)
    given = slurm_allocation.agent_environment()
    assert (given["HOME"], given["SLURM_CONF"]) == ("/h", "/etc/slurm.conf")
    assert not given.keys() & BATCH.keys()
    assert "SLURM_CPUS_PER_TASK" not in given


def test_srun_starts_an_agent_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSIP_REMOTE_PYTHON", "/opt/python")
    command = agent_command(HostLine("n1", job="5"))
    assert command[0] == "srun"
    assert {"--jobid=5", "--nodelist=n1", "--ntasks=1", "--overlap"} <= {*command}
    assert command[-1] == "/opt/python"
    assert "-m launch.swarm.agent --stay" in command[-3]


def test_what_srun_says_is_explained() -> None:
    line = HostLine("n1", job="5")
    told = slurm_allocation.explained(line, 1, ["srun: error: Unable to create step"], 60.0)
    assert told == (
        "srun ended with exit code 1: check that 'srun --jobid=5 --overlap -w n1 -n 1 true' works "
        "(srun: error: Unable to create step)"
    )
    assert "has no such Python" in slurm_allocation.explained(line, 127, [], 60.0)
    assert "has no gossip" in slurm_allocation.explained(line, 1, ["/usr/bin/python3: No module named launch"], 60.0)
    assert "did not answer within 60 s" in slurm_allocation.explained(line, None, [], 60.0)


def test_a_requeued_job_continues_its_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = LaunchOptions(script="train.py", run_dir=str(run))
    again = {"SLURM_RESTART_COUNT": "1"}
    assert not requeued(options, again).resume, "there is nothing to continue"
    (run / "rank-0").mkdir(parents=True)
    assert requeued(options, again).resume
    assert not requeued(options, {}).resume
    assert not requeued(LaunchOptions(script="train.py"), again).resume
