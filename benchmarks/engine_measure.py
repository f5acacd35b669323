"""Runs the worker processes of the engine benchmark and makes figures of what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean, median

from benchmarks.processes import Answer, Fleet

__all__ = ["Row", "Slowdown", "exchanges", "slowdown"]

_WARMUP = 2


@dataclass(frozen=True)
class Row:
    """One way to mix, among ``n`` processes."""

    system: str
    transport: str
    n: int
    mib: int
    #: Of one step: the slowest process, the median over runs.
    wall_seconds: float
    #: Of all processes together, user and system, for each 1e9 bytes of model that were mixed; the median over runs.
    cpu_seconds_per_gb: float
    #: That a peer hands over, on average: values count however they get there.
    bytes_per_step: float
    #: Of those, what goes through sockets.
    wire_bytes_per_step: float
    #: ``measured`` where it was sent, or the ``formula`` of the algorithm.
    bytes_by: str
    #: The most that any process ever held.
    peak_rss_mib: float
    #: What it held before there was a model: the interpreter and what it imports.
    own_rss_mib: float
    #: Other processes' memory that is mapped in it: resident here, and in their own figures as well.
    others_rss_mib: float
    wall_runs: list[float] = field(default_factory=list)
    cpu_runs: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Slowdown:
    """What an engine costs the trainer in its process: time per step, over the same without an engine."""

    idle: float
    busy: float
    #: Of the busy one, without the time at the step boundaries, in which the mass is merged.
    busy_computing: float
    #: Bytes a second that came in.
    rate: float


def exchanges(systems: Sequence[str], n: int, mib: int, runs: int, steps: int) -> list[Row]:
    """Measure some ways to mix, in turns: whatever else the machine does then falls on all of them alike."""
    with ExitStack() as stack:
        fleets = [
            stack.enter_context(
                Fleet("benchmarks.engine_worker", [[system, str(rank), str(n), str(mib)] for rank in range(n)])
            )
            for system in systems
        ]
        own = []
        for fleet in fleets:
            first = fleet.answers()
            own.append(max(answer["own_rss_mib"] for answer in first))
            fleet.ask({"addresses": [answer["address"] for answer in first]})
        found: list[list[list[Answer]]] = [[] for _ in systems]
        for _ in range(runs):
            for fleet, results in zip(fleets, found, strict=True):
                fleet.ask({"warmup": _WARMUP, "steps": steps})
                results.append(fleet.ask({"go": True}))
    return [
        _row(system, n, mib, steps, memory, results)
        for system, memory, results in zip(systems, own, found, strict=True)
    ]


def _row(system: str, n: int, mib: int, steps: int, own: float, runs: Sequence[Sequence[Answer]]) -> Row:
    model = mib << 20
    assert system == "gloo" or not any(answer["torch"] for run in runs for answer in run), "torch counts as its memory"
    walls = [max(answer["wall"] for answer in run) / steps for run in runs]
    cpus = [sum(answer["cpu"] for answer in run) / (n * model * steps / 1e9) for run in runs]
    # Not the median: what is sent again counts, however seldom that is. Gloo does not count its bytes; its ring sends
    # every process's share of the model around once to sum it and once to spread it.
    measured = system != "gloo"
    formula = 2 * (n - 1) / n * model
    sent, wire = (
        fmean(answer[what] / steps for run in runs for answer in run) if measured else formula
        for what in ("sent", "wire")
    )
    return Row(
        system=system,
        transport={"gossip": "shm", "allreduce": "shm", "gossip-curve": "tcp+curve"}.get(system, "tcp"),
        n=n,
        mib=mib,
        wall_seconds=median(walls),
        cpu_seconds_per_gb=median(cpus),
        bytes_per_step=sent,
        wire_bytes_per_step=wire,
        bytes_by="measured" if measured else "formula",
        peak_rss_mib=max(answer["peak_rss_mib"] for run in runs for answer in run),
        own_rss_mib=own,
        others_rss_mib=max(answer["others_mib"] for run in runs for answer in run),
        wall_runs=walls,
        cpu_runs=cpus,
    )


def slowdown(mib: int, runs: int, seconds: float) -> Slowdown:
    """Measure a trainer without an engine, with an idle one and with a busy one, in turns."""
    with ExitStack() as stack:
        fleets = {}
        for role, peers in (("none", 1), ("idle", 2), ("busy", 2)):
            arguments = [[role, str(rank), str(mib)] for rank in range(peers)]
            fleets[role] = stack.enter_context(Fleet("benchmarks.engine_trainer", arguments))
        for fleet in fleets.values():
            fleet.ask({"addresses": [answer["address"] for answer in fleet.answers()]})
        for fleet in fleets.values():
            fleet.ask({"seconds": seconds / 4})  # to warm up
        found: list[dict[str, list[Answer]]] = []
        for _ in range(runs):
            found.append({role: fleet.ask({"seconds": seconds}) for role, fleet in fleets.items()})
    for run in found:
        idle, busy = run["idle"][0]["weight"], run["busy"][0]["weight"]
        assert busy > idle, "nothing was merged"
    return Slowdown(
        idle=median(run["idle"][0]["step"] / run["none"][0]["step"] for run in found),
        busy=median(run["busy"][0]["step"] / run["none"][0]["step"] for run in found),
        busy_computing=median(run["busy"][0]["computing"] / run["none"][0]["computing"] for run in found),
        rate=median(run["busy"][1]["rate"] for run in found),
    )
