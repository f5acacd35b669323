"""A launch belongs to one process: a program that starts many would start as many swarms of their own."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from launch.user_errors import CommandError

__all__ = ["check_one_launcher"]

#: The variable with the number of processes, and the program that sets it for those that it starts.
#: SLURM_NTASKS would not do: it is also set in the script of sbatch and in the shell of salloc, which run once.
_STARTERS = {
    "SLURM_STEP_NUM_TASKS": "srun",
    "OMPI_COMM_WORLD_SIZE": "mpirun",
    "PMI_SIZE": "mpirun",
    "WORLD_SIZE": "torchrun",
}


def check_one_launcher(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> None:
    """Raise an error, with the line to type instead, if this process is one of many that were started together.

    Args:
        command: what each peer is to run.
        environment: of this process.
    """
    for variable, starter in _STARTERS.items():
        number = environment.get(variable, "")
        if not number.isdigit() or int(number) < 2 or (starter == "torchrun" and "RANK" not in environment):
            continue
        words = ["python" if word == sys.executable else word for word in command]
        if starter == "srun":
            instead = f"srun -n {number} {shlex.join(words)}"
        elif starter == "torchrun":
            instead = f"torchrun --nproc-per-node {number} {shlex.join(words[1:] if words[0] == 'python' else words)}"
        else:
            instead = f"gossip launch -n {number} ... once, without mpirun, or with --hostfile for several hosts"
        raise CommandError(
            f"{variable}={number}: {starter} starts {number} launchers, and each would start a swarm of its own. "
            f"Type: {instead}. If you want a swarm in each task, add --each-task"
        )
