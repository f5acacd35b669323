"""Processes of a script of a framework's user, started as torchrun, srun or gossip launch would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
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
    script: str, output: Path, options: dict[str, Any], environments: list[dict[str, str]], *, srun: bool = False
) -> list[Any]:
    """Run a script in several processes; return what each said, or the exit code of one that was killed.

    Args:
        script: a file beside this one.
        output: where the script writes.
        options: of the framework.
        environments: further variables of each process.
        srun: start them as srun would, not as torchrun would.
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
        assert process.returncode in (0, -signal.SIGKILL), errors
    return [
        json.loads(out.splitlines()[-1]) if process.returncode == 0 else process.returncode
        for process, (out, _) in zip(processes, ends, strict=True)
    ]


def run_launched(script: str, output: Path, options: dict[str, Any], n: int, *launch: str) -> list[Any]:
    """Run a script by gossip launch, where rank 0 is killed after six steps and comes back; return what each said.

    Args:
        script: a file beside this one.
        output: where the script writes.
        options: of the framework.
        n: the number of peers.
        launch: further options of gossip launch.
    """
    run = output / "run"
    command = [sys.executable, "-m", "launch.cli", "launch", "-n", str(n), "--quiet", "--run-dir", str(run)]
    command += ["--start-timeout", "150s", "--fault", "kill:0@6", "--restart", "1", *launch]
    command += [str(Path(__file__).with_name(script)), str(output), json.dumps(options), "{}"]
    # The others wait for the restarted one, or they would be through before it is there.
    environment = clean_environment(PAUSE_AT="8")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * LONGEST_PROCESS)
    logs = [(run / f"rank-{rank}" / "log.txt").read_text() for rank in range(n)]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *(log[-2000:] for log in logs)])
    return [json.loads(log.splitlines()[-1]) for log in logs]
