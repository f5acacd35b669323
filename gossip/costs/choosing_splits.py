"""All splits of a machine, the best of them, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gossip.costs.inner_kinds import KINDS
from gossip.costs.machine import Machine
from gossip.costs.predictions import Job, Prediction, predict
from gossip.errors import SettingsError
from gossip.grids import Grid
from topologies.schedule import Schedule

__all__ = ["SplitChoice", "choose", "seconds_text"]


@dataclass(frozen=True)
class SplitChoice:
    """The predictions for all splits, fewest rows first, and the best of them."""

    job: Job
    machine: Machine
    splits: tuple[Prediction, ...]
    #: The split with the shortest step among those that fit; None if none does.
    best: Prediction | None
    #: Why, in a sentence.
    why: str


def choose(
    job: Job,
    machine: Machine,
    *,
    kinds: Sequence[str] = KINDS,
    schedule: Callable[[int], Schedule] | None = None,
    memory: float | None = None,
    spanning: bool = False,
) -> SplitChoice:
    """Predict every split of the machine's processes, and choose the one with the shortest step.

    Args:
        job: what is to be trained.
        machine: where.
        kinds: the kinds inside crews that come into question; whole replicas ("data") always do.
        schedule: returns the schedule of this many replicas, if they gossip.
        memory: the bytes that a process may take.
        spanning: whether crews may be spread over several hosts.
    """
    splits = tuple(
        predict(job, machine, grid, kind, schedule=schedule, memory=memory, spanning=spanning)
        for grid in Grid.all_of(machine.processes)
        for kind in (("data",) if grid.rows == 1 else [kind for kind in kinds if kind != "data"])
    )
    fitting = [split for split in splits if split.fits]
    # Steps are often equal, because a slow exchange across hides the rest. Then the split that is less busy wins.
    best = min(fitting, key=_rank, default=None)
    return SplitChoice(job, machine, splits, best, _why(best, splits))


def seconds_text(seconds: float) -> str:
    """Write a time with three digits."""
    if seconds < 0:
        raise SettingsError(f"seconds must be 0 or more, not {seconds}")
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if 0 < seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def _rank(split: Prediction) -> tuple[float, float]:
    """Return what splits are compared by. Differences by rounding do not count."""
    return float(f"{split.step:.6g}"), float(f"{split.computing + split.communication:.6g}")


def _why(best: Prediction | None, splits: Sequence[Prediction]) -> str:
    data = splits[0]
    if best is None:
        return f"No split fits: {data} {_verb(data.reason)}."
    start = f"{best} has the shortest step, {seconds_text(best.step)}"
    if best is data:
        others = [split for split in splits[1:] if split.fits]
        if not others:
            return f"{start}: no split of a replica fits." if len(splits) > 1 else f"{start}: there is one process."
        rival = min(others, key=_rank)
        return f"{start}: {rival}, the next best, takes {seconds_text(rival.step)}{_more(rival, best)}."
    if not data.fits:
        return f"{start}: {data} {_verb(data.reason)}."
    return f"{start}: {data} takes {seconds_text(data.step)}{_more(data, best)}."


def _more(slow: Prediction, fast: Prediction) -> str:
    """Say where the slower of two splits spends most of the difference."""
    parts = {
        "computing": slow.computing - fast.computing,
        "traffic inside the crew": slow.inner - fast.inner,
        "waiting for traffic between replicas": slow.exposed - fast.exposed,
    }
    name = max(parts, key=lambda part: parts[part])
    return f", with {seconds_text(parts[name])} more of {name}" if parts[name] > 0 else ""


def _verb(reason: str) -> str:
    return reason if reason.startswith("needs ") else f"cannot be had ({reason})"
