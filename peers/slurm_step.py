"""What Slurm tells a task of `srun`: who it is, and where the tasks of its job step meet.

A job step is all that one `srun` has started. A batch script and the shell of `salloc` belong to no job step of `srun`,
though they have variables like SLURM_NTASKS and even SLURM_PROCID.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossip.errors import SettingsError
from peers.host_lists import expanded

__all__ = ["SlurmStep", "restarts"]

#: Ports from here on are below those that systems give to outgoing connections, and above those of their services.
_FIRST_PORT, _PORTS = 10_000, 20_000
#: How far the ports of two job steps of a job are apart: those of a thousand jobs lie in between.
_STEP_STRIDE = 1009
#: Numbers of job steps from here on are Slurm's own, such as that of the shell of `salloc`.
_OWN_STEPS = 0xFFFFFFF0


@dataclass(frozen=True)
class SlurmStep:
    """The place of a process in a job step of `srun`."""

    rank: int
    tasks: int
    local_rank: int
    #: The nodes of the job step by name; the first one has rank 0.
    nodes: tuple[str, ...]
    #: Where rank 0 can serve a store. Jobs and job steps that run at the same time have different ports.
    port: int
    #: The node of this process, if Slurm says so.
    own_node: str = ""

    @classmethod
    def found(cls, environment: Mapping[str, str]) -> SlurmStep | None:
        """Return the place that the environment tells, or None outside of `srun`."""
        if not {"SLURM_STEP_ID", "SLURM_PROCID"} <= environment.keys():
            return None
        job, step = (_number(environment, name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        if step >= _OWN_STEPS:
            return None
        return cls(
            rank=_number(environment, "SLURM_PROCID"),
            tasks=_number(environment, "SLURM_NTASKS"),
            local_rank=_number(environment, "SLURM_LOCALID"),
            nodes=tuple(expanded(environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", ""))),
            port=_FIRST_PORT + (job + _STEP_STRIDE * step) % _PORTS,
            own_node=environment.get("SLURMD_NODENAME", ""),
        )

    @property
    def meeting(self) -> dict[str, str]:
        """Where the tasks meet, as the variables that torchrun would set; nothing if Slurm names no node."""
        if not self.nodes:
            return {}
        # Tasks of one node have no need of its name, and of a network.
        host = self.nodes[0] if len(self.nodes) > 1 else "127.0.0.1"
        return {"MASTER_ADDR": host, "MASTER_PORT": str(self.port)}

    @property
    def others(self) -> list[str]:
        """The nodes of the job step beside this one."""
        return [node for node in self.nodes if node != self.own_node]


def restarts(environment: Mapping[str, str]) -> int:
    """Return how often Slurm has put this job back into its queue and started it again."""
    return _number(environment, "SLURM_RESTART_COUNT")


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "") or "0"
    if not (text.isascii() and text.isdigit()):
        raise SettingsError(f"{name}={text!r} in the environment must be a whole number of 0 or more")
    return int(text)
