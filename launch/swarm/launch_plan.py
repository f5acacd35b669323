"""The plan of a launch: its peers, their hosts and their settings. Made and checked before anything starts."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossip import policies
from gossip.choosing import Recommendation
from gossip.grids import Grid
from gossip.net.process_environment import ENVIRONMENT
from launch.swarm.gpus import gpu_for
from launch.swarm.host import PeerProcess, threads
from launch.swarm.hostfile import HostLine
from launch.user_errors import CommandError

__all__ = ["LaunchPlan", "PeerSeat", "check_program", "program"]


@dataclass(frozen=True)
class PeerSeat:
    """Where a rank runs."""

    rank: int
    local_rank: int
    host: HostLine


@dataclass(frozen=True)
class LaunchPlan:
    """A launch, in full."""

    #: The user's program and its arguments.
    command: tuple[str, ...]
    seats: tuple[PeerSeat, ...]
    #: What all peers are told; the fields of `peers.setup.Setup` that are the same for all.
    common: Mapping[str, Any]
    run_dir: Path
    #: How often a local peer that died is started again.
    restarts: int = 0
    #: Whether peers are on several machines, and so need keys, or are told to do without.
    spread: bool = False
    insecure: bool = False
    #: Peers of the swarm that is joined, when it started; 0: the seats are all there are.
    swarm: int = 0
    #: The rows of each replica, and the replicas; None: a replica for each process.
    grid: Grid | None = None
    #: What --grid auto has chosen, and why, in a sentence; empty if the user named the grid.
    why_grid: str = ""
    #: What --algorithm auto has chosen, and why; None if the user named an algorithm.
    chosen: Recommendation | None = None
    #: A warning for the user, or nothing.
    warning: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """How many peers there are."""
        return len(self.seats)

    def crew(self, rank: int) -> range:
        """Return the ranks of the replica that a process belongs to."""
        rows = 1 if self.grid is None else self.grid.rows
        return range(rank - rank % rows, rank - rank % rows + rows)

    def process(self, seat: PeerSeat, extra: Mapping[str, Any]) -> PeerProcess:
        """Return what is to be started for a rank; ``extra`` is what only this peer is told."""
        on_host = sum(1 for other in self.seats if other.host == seat.host)
        setup: dict[str, Any] = {
            **self.common,
            "rank": seat.rank,
            "world_size": self.swarm or self.world_size,
            "local_rank": seat.local_rank,
            "run_dir": str(self.run_dir),
            "insecure": self.insecure,
            **extra,
        }
        if self.spread:
            setup.setdefault("bind", self.bind(seat))
            setup["advertise"] = seat.host.advertise or seat.host.host
        return PeerProcess(
            seat.rank,
            self.command,
            setup,
            str(self.run_dir / f"rank-{seat.rank}" / "log.txt"),
            {
                **(self._shares(seat, on_host) if seat.host.is_local else {}),
                **ENVIRONMENT,
                "PYTHONUNBUFFERED": "1",
                **self.environment,
            },
        )

    def _shares(self, seat: PeerSeat, on_host: int) -> dict[str, str]:
        """Return what a peer of this machine gets of it; the agent does the same on other machines."""
        return {**threads(on_host), **gpu_for(seat.local_rank, self.common.get("device", "auto"))}

    def bind(self, seat: PeerSeat, port: int = 0) -> str:
        """Return where a peer listens that others reach from elsewhere; port 0 is any free one."""
        return f"{'[::]' if ':' in (seat.host.advertise or seat.host.host) else '0.0.0.0'}:{port}"  # noqa: S104

    @property
    def _has_crews(self) -> bool:
        return self.grid is not None and self.grid.rows > 1

    def _place(self, seat: PeerSeat) -> str:
        """Return which part of which replica a seat is, if replicas have several."""
        if self.grid is None or not self._has_crews:
            return ""
        return f", replica {self.grid.replica(seat.rank)}, row {self.grid.row(seat.rank)}"

    def lines(self) -> list[str]:
        """Return the plan for people to read."""
        lines = [f"{self.world_size} peers run: {shlex.join(self.command)}", f"run directory: {self.run_dir}"]
        if self.grid is not None and self._has_crews:
            lines.append(f"grid: {self.grid.replicas} replicas, each of {self.grid.rows} processes")
        lines += [f"{name}: {value}" for name, value in sorted(self.common.items()) if value not in ("", (), [], None)]
        lines += [
            f"rank {seat.rank}: {seat.host}, local rank {seat.local_rank}{self._place(seat)}" for seat in self.seats
        ]
        if self.restarts:
            who = "replica" if self._has_crews else "peer"
            lines.append(f"a {who} that dies is restarted, up to {self.restarts} times")
        if self.spread:
            lines.append("without encryption" if self.insecure else "encrypted, with a new key for each peer")
        return lines


def check_program(script: str, module: bool, *, here: bool) -> None:
    """Raise an error if this machine would have to run something that is not there.

    Args:
        script: a script, a module or an executable.
        module: whether it is a module.
        here: whether a peer runs on this machine; a script is looked for in any case.
    """
    if module:
        return
    if Path(script).is_dir():
        raise CommandError(f"{script} is a directory: name the script in it, or a module with -m")
    if script.endswith(".py"):
        if not Path(script).is_file():
            raise CommandError(f"the script {script} does not exist")
    elif here and shutil.which(script) is None:
        if Path(script).is_file():
            raise CommandError(
                f"the program {script} cannot be executed: name it with a path (./{Path(script).name}), and allow it "
                "with chmod +x; the name of a Python script ends in .py"
            )
        hint = f"; did you mean --algorithm {script}?" if script.partition(":")[0] in policies.names() else ""
        raise CommandError(f"cannot find the program {script}: it is not a script (.py), and not on the PATH{hint}")


def program(script: str, arguments: Sequence[str], module: bool) -> tuple[str, ...]:
    """Return the command that runs a user's script, module or executable."""
    if module:
        return (sys.executable, "-m", script, *arguments)
    if script.endswith(".py"):
        return (sys.executable, script, *arguments)
    return (script, *arguments)
