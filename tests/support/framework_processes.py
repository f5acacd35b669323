"""Processes of a script of a framework's user, started as torchrun, srun or gossip launch would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swarms import LONGEST_PROCESS, clean_environment, reserved_ports


def _torchruns(rank: int, size: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}


def _sruns(rank: int, size: int) -> dict[str, str]:
    """Return what srun sets for a task of a step on one node."""
    said = {
        "JOB_ID": "7",
        "JOBID": "7",
        "JOB_NAME": "train",
        "STEP_ID": "0",
        "STEPID": "0",
        "NODEID": "0",
        "NTASKS": str(size),
        "NPROCS": str(size),
        "STEP_NUM_TASKS": str(size),
        "STEP_TASKS_PER_NODE": str(size),
        "PROCID": str(rank),
        "LOCALID": str(rank),
        "NTASKS_PER_NODE": str(size),
        "TASKS_PER_NODE": str(size),
        "JOB_NODELIST": "localhost",
        "NODELIST": "localhost",
        "STEP_NODELIST": "localhost",
        "JOB_NUM_NODES": "1",
        "NNODES": "1",
        "STEP_NUM_NODES": "1",
        "SRUN_COMM_HOST": "127.0.0.1",
    }
    return {f"SLURM_{name}": value for name, value in said.items()}


def run_together(
    script: str,
    output: Path,
    options: dict[str, Any],
    environments: list[dict[str, str]],
    *,
    srun: bool = False,
    expected: Sequence[int] = (),
) -> list[Any]:
    """Run a script in several processes; return what each said, or its exit code if it was ended.

    Args:
        script: a file beside this one.
        output: where the script writes.
        options: of the framework.
        environments: further variables of each process.
        srun: start them as srun would, not as torchrun would.
        expected: exit codes beside 0 and that of SIGKILL.
    """
    place, size = _sruns if srun else _torchruns, len(environments)
    with reserved_ports(1) as (port,):
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GOSSIP_START_TIMEOUT": "150"}
        command = [sys.executable, str(Path(__file__).with_name(script)), str(output), json.dumps(options), "{}"]
        processes = [
            subprocess.Popen(
                command,
                env=clean_environment(**meeting, **place(rank, size), **more),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, more in enumerate(environments)
        ]
        try:
            ends = [process.communicate(timeout=LONGEST_PROCESS) for process in processes]
        finally:
            for process in processes:
                process.kill()
    for process, (_, errors) in zip(processes, ends, strict=True):
        assert process.returncode in (0, -signal.SIGKILL, *expected), errors
    return [
        json.loads(out.splitlines()[-1]) if process.returncode == 0 else process.returncode
        for process, (out, _) in zip(processes, ends, strict=True)
    ]


def run_launched(
    script: str, output: Path, options: dict[str, Any], n: int, *launch: str, expected: int = 0, **environment: str
) -> list[Any]:
    """Run a script by gossip launch; return what each peer said, or None for one that did not come to its end.

    Args:
        script: a file beside this one.
        output: where the script writes.
        options: of the framework.
        n: the number of peers.
        launch: further options of gossip launch.
        expected: the launcher's exit code.
        environment: further variables.
    """
    run = output / "run"
    command = [sys.executable, "-m", "launch.cli", "launch", "-n", str(n), "--quiet", "--run-dir", str(run)]
    command += ["--start-timeout", "150s", *launch]
    command += [str(Path(__file__).with_name(script)), str(output), json.dumps(options), "{}"]
    done = subprocess.run(
        command,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=2 * LONGEST_PROCESS,
        check=False,
    )
    logs = [(run / f"rank-{rank}" / "log.txt").read_text() for rank in range(n)]
    assert done.returncode == expected, "\n".join([done.stdout, done.stderr, *(log[-2000:] for log in logs)])
    return [json.loads(log.splitlines()[-1]) if log.splitlines()[-1].startswith("{") else None for log in logs]
