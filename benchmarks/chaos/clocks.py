"""Clocks that jump, and clocks that were never the same. The runtime goes by monotonic clocks, and nobody else's."""

from __future__ import annotations

from benchmarks.chaos.harness import STEP
from benchmarks.chaos.network import network
from benchmarks.chaos.rows import Stage, row

__all__: list[str] = []

ALL = range(4)
#: Seconds that one host's monotonic clock is ahead: three years.
_AHEAD = 100_000_000


@row("clock-back", "the clock of one peer jumps back by an hour")
def clock_back(stage: Stage) -> None:
    """Let time.time() of one peer jump."""
    _jumps(stage, "clock-back")


@row("clock-on", "the clock of one peer jumps on by an hour")
def clock_on(stage: Stage) -> None:
    """Let time.time() of one peer jump."""
    _jumps(stage, "clock-on")


@row("uptime", "the monotonic clock of one host is three years ahead (a time namespace)", root=True)
def uptime(stage: Stage) -> None:
    """Start one peer in a time namespace of its own."""
    directory = stage.session.new_directory(stage.name)
    with network(directory) as hosts:
        hosts.ways[1] += ["env", "-u", "CHAOS_NURSERY", "unshare", "--time", "--monotonic", str(_AHEAD)]
        with stage.swarm(
            *hosts.options, survivors=ALL, directory=directory / "run", environment=hosts.environment
        ) as swarm:
            swarm.reach()
            swarm.fault()


def _jumps(stage: Stage, what: str) -> None:
    with stage.swarm(survivors=ALL, arguments=["--sabotage", f"{what}:1@{STEP}"]) as swarm:
        swarm.reach()
        swarm.fault()
