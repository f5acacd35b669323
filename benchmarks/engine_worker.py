"""One process of the engine benchmark: mixes a model with others, in the way that SYSTEM names.

    python -m benchmarks.engine_worker SYSTEM RANK N MIB

It is started by `benchmarks.engine` and speaks in lines of JSON; see `benchmarks.processes`. The answers, in order: its
address and its memory before there is a model; that it is connected; then, for each run, that it has warmed up, and
what the timed steps took.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.engine_values import Floats, empty, fill

__all__ = ["cpu_seconds", "hear", "peak_rss", "say"]


class Exchange(Protocol):
    """A way to mix values with other processes."""

    @property
    def address(self) -> Any:
        """What the others have to know, as JSON."""

    def join(self, addresses: Sequence[Any], values: Floats) -> None:
        """Connect to the others, whose addresses these are by rank; the values are what will be mixed."""

    def step(self) -> None:
        """Mix once, and wait for it."""

    def sent(self) -> int | None:
        """Return the bytes that were handed over so far, or None where that is not known."""

    def wire(self) -> int | None:
        """Return the bytes of them that went through sockets, or None where that is not known."""

    def others(self) -> int:
        """Return the bytes of other processes' memory that are mapped here."""

    def check(self, values: Floats, steps: int) -> None:
        """Raise unless the values are the result of ``steps`` steps from freshly filled ones."""

    def close(self) -> None:
        """End everything."""


def exchange(system: str, rank: int, n: int) -> Exchange:
    """Return the way to mix that goes by this name; nothing is imported that it does not need."""
    if system.startswith("gossip"):
        from benchmarks.engine_gossip import Gossip

        return Gossip(rank, n, encrypted=system == "gossip-curve", shared=system == "gossip")
    if system.startswith("allreduce"):
        from benchmarks.engine_reduction import Reducing

        return Reducing(rank, n, shared=system == "allreduce")
    if system == "gloo":
        from benchmarks.engine_gloo import Gloo

        return Gloo(rank, n)
    from benchmarks.engine_sockets import Sockets

    return Sockets(rank, n, blocks=system == "sockets-blocks")


def say(answer: dict[str, Any]) -> None:
    """Answer the parent."""
    print(json.dumps(answer), flush=True)


def hear() -> dict[str, Any] | None:
    """Return the parent's next request, or None when there are no more."""
    line = sys.stdin.readline()
    request: dict[str, Any] | None = json.loads(line) if line else None
    return request


def cpu_seconds() -> float:
    """Return the CPU time of this process so far, all threads, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_rss() -> float:
    """Return the most memory that this process has held, in MiB.

    Not ``ru_maxrss``: a process that was started by a large one inherits the large one's peak.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _since(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def run(system: str, rank: int, n: int, mib: int) -> None:
    """Take part until stdin ends."""
    way = exchange(system, rank, n)
    try:
        say({"address": way.address, "own_rss_mib": peak_rss()})
        request = hear()
        if request is None:
            return
        values = empty(mib)
        way.join(request["addresses"], values)
        say({"joined": True})
        while (request := hear()) is not None:
            for _ in range(request["warmup"]):
                way.step()
            fill(values, rank)
            gc.collect()
            say({"warm": True})
            if hear() is None:
                return
            steps, sent, wire = request["steps"], way.sent(), way.wire()
            cpu, began = cpu_seconds(), time.perf_counter()
            for _ in range(steps):
                way.step()
            wall = time.perf_counter() - began
            cpu = cpu_seconds() - cpu
            way.check(values, steps)
            say(
                {
                    "wall": wall,
                    "cpu": cpu,
                    "sent": _since(sent, way.sent()),
                    "wire": _since(wire, way.wire()),
                    "others_mib": way.others() / (1 << 20),
                    "peak_rss_mib": peak_rss(),
                    "torch": "torch" in sys.modules,
                }
            )
    finally:
        way.close()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
