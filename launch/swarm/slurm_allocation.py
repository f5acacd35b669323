"""The allocation of a Slurm job as a list of hosts, with `srun` in place of ssh.

In the script of `sbatch` and in the shell of `salloc`, `gossip launch` starts one agent per node by `srun`. The agent
belongs to the job, so that its peers have the job's cores, memory and GPUs, and end with the job.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launch.options.options import LaunchOptions
from launch.swarm.hostfile import HostLine
from launch.swarm.run_place import used
from launch.swarm.ssh import BOOTSTRAP
from launch.user_errors import CommandError
from peers.host_lists import expanded
from peers.slurm_step import SlurmStep, restarts

__all__ = ["agent_command", "agent_environment", "allocation", "explained", "requeued"]

#: The tasks of a node, and perhaps of how many nodes in a row, as in 4(x2).
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?", re.ASCII)
#: The variables of Slurm that srun gets. Others ask for tasks, cores or GPUs as the user's own steps need them.
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")


def allocation(environment: Mapping[str, str] = os.environ) -> list[HostLine]:
    """Return the nodes of the job that this process is in, or nothing outside of a job.

    A node takes as many peers as tasks were asked for. If nobody asked for tasks, it takes one for each GPU, or one.
    A task of `srun` is no place for a launcher of the whole allocation.
    """
    job, nodes = environment.get("SLURM_JOB_ID"), environment.get("SLURM_JOB_NODELIST")
    if not job or not nodes or SlurmStep.found(environment) is not None:
        return []
    names = expanded(nodes)
    slots = _slots(environment, len(names))
    return [HostLine(name, count, advertise=name, job=job) for name, count in zip(names, slots, strict=True)]


def _slots(environment: Mapping[str, str], nodes: int) -> list[int]:
    text = environment.get("SLURM_TASKS_PER_NODE", "")
    if not environment.get("SLURM_NTASKS"):
        gpus = environment.get("SLURM_GPUS_PER_NODE") or environment.get("SLURM_GPUS_ON_NODE") or ""
        number = gpus.rpartition(":")[2]  # as in a100:4
        return [int(number) if number.isascii() and number.isdigit() and int(number) else 1] * nodes
    words = [_TASKS.fullmatch(word) for word in text.split(",")]
    found = [int(word[1]) for word in words if word is not None for _ in range(int(word[2] or 1))]
    if None in words or len(found) != nodes or not all(found):
        raise CommandError(
            f"SLURM_TASKS_PER_NODE={text!r} does not say how many tasks each of {nodes} nodes has: list the hosts in a "
            "file, and name it with --hostfile"
        )
    return found


def agent_command(line: HostLine) -> list[str]:
    """Return the command that runs the agent on a node of the allocation, beside other steps of the job."""
    chosen = line.python or os.environ.get("GOSSIP_REMOTE_PYTHON", "")
    pythons = [chosen] if chosen else [sys.executable, "python3"]
    step = {"jobid": line.job, "nodelist": line.host, "nodes": 1, "ntasks": 1, "cpu-bind": "none", "mem": 0}
    options = [f"--{name}={value}" for name, value in step.items()]
    return ["srun", *options, "--overlap", "sh", "-c", BOOTSTRAP.format(options="--stay"), "gossip", *pythons]


def agent_environment() -> dict[str, str]:
    """Return the environment of `srun`."""
    return {name: text for name, text in os.environ.items() if not name.startswith("SLURM_") or name in _KEPT}


def explained(line: HostLine, code: int | None, stderr: Sequence[str], seconds: float) -> str:
    """Return why no agent runs on a node, and what to do; ``code`` is None if `srun` has not ended in time."""
    said = " / ".join(stderr[-4:])
    by_hand = f"srun --jobid={line.job} --overlap -w {line.host} -n 1 true"
    if code is None:
        reason = f"did not answer within {seconds:g} s: check that '{by_hand}' works, or raise --start-timeout"
    elif "No module named" in said:
        reason = "has no gossip, or an old version: install it where all nodes see it, or set GOSSIP_REMOTE_PYTHON"
    elif code == 127:
        reason = "has no such Python: install it where all nodes see it, or set GOSSIP_REMOTE_PYTHON"
    else:
        reason = f"srun ended with exit code {code}: check that '{by_hand}' works"
    return f"{reason} ({said})" if said else reason


def requeued(options: LaunchOptions, environment: Mapping[str, str] = os.environ) -> LaunchOptions:
    """Return the options with --resume if Slurm has started this job again, and its run directory has a run."""
    if restarts(environment) and options.run_dir and used(Path(options.run_dir)):
        return replace(options, resume=True)
    return options
