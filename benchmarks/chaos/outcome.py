"""What became of a swarm: figures read from what its peers wrote, and the bars that they are held against.

- *pause*: the longest time between two steps of a survivor, from the fault on;
- *lost*: steps of survivors that are missing from their records, or stand there twice;
- *mass error*: the weight that survivors hold, less what they should. They should hold 1 each, plus what they booked
  from lives that are over, less what these booked from them: so what died is accounted for by the books of those who
  live, parcel by parcel, and what went between survivors must cancel;
- *apart*: the disagreement that the last mixing reached;
- *loss*: of the average of all, on the example's test images. It tells runs apart that name as many images right;
- *memory*: how much the largest survivor grew, from the fault on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bars import Bar
from benchmarks.chaos.harness import Swarm, lines

__all__ = ["EXACT", "LOSS", "PAUSE", "Outcome", "bars", "mass", "measured"]

_RESULT = re.compile(r"average of all ([\d.]+)%")
#: What the bars of these are called.
LOSS, PAUSE = "loss", "longest pause"
#: Weights are sums of a few thousand numbers of double precision.
EXACT = 1e-9
AGREED = 1e-3
#: The most of the undisturbed swarms' loss. It is a mean over all test images, so that one of them decides nothing: the
#: share that is named right changes by 0.28 points with each.
TIMES = 1.25
PAUSE_STEPS, PAUSE_SECONDS = 2.0, 1.0
GROWTH = 64.0
#: A pause in which the machine itself stood still for at least a part of it is the machine's.
_MACHINE = 1.5

_Life = tuple[int, int]
#: A parcel: the lives that it went between, and its sequence.
_Key = tuple[_Life, _Life, int]


@dataclass
class Outcome:
    """The figures of one row."""

    step_seconds: float = 0.0
    pause_seconds: float = 0.0
    lost: int = 0
    mass_error: float = 0.0
    #: What is not there any more of all that there ever was.
    written_off: float = 0.0
    apart: float = 0.0
    accuracy: float = 0.0
    loss: float = 0.0
    memory_mib: float = 0.0
    #: How long the machine stood still meanwhile.
    stall_seconds: float = 0.0
    steps: int = 0
    #: What else the row has to show, by name.
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def pause_steps(self) -> float:
        """The longest pause, in step times."""
        return self.pause_seconds / self.step_seconds if self.step_seconds else 0.0


def measured(swarm: Swarm, survivors: Collection[int]) -> Outcome:
    """Read what the peers of a swarm that has ended wrote."""
    outcome = Outcome(stall_seconds=swarm.metronome.longest(swarm.fault_at))
    before: list[float] = []
    for rank in survivors:
        for times, steps in _lives(swarm, rank):
            gaps = [(late, late - early) for early, late in pairwise(times)]
            before += [gap for at, gap in gaps if at < swarm.fault_at]
            pauses = [gap for at, gap in gaps if at >= swarm.fault_at]
            outcome.pause_seconds = max([outcome.pause_seconds, *pauses])
            outcome.lost += len(steps) - len(set(steps)) + (max(steps) - min(steps) + 1 - len(set(steps)))
            outcome.steps += len(steps)
    outcome.step_seconds = median(before) if before else 0.0
    outcome.mass_error, outcome.written_off = mass(swarm)
    outcome.apart = max(_apart(swarm, rank) for rank in survivors)
    outcome.accuracy = min(_accuracy(swarm.directory(rank) / "log.txt") for rank in survivors)
    outcome.loss = max(_loss(swarm.directory(rank) / "loss") for rank in survivors)
    outcome.memory_mib = max(_growth(swarm, rank) for rank in survivors) / (1 << 20)
    return outcome


def bars(outcome: Outcome, undisturbed: Outcome | None) -> list[Bar]:
    """Return what the figures of any row are held against; without an undisturbed swarm, loss is left out."""
    machine = _MACHINE * outcome.stall_seconds
    longest = max(PAUSE_STEPS * outcome.step_seconds, PAUSE_SECONDS, machine)
    found = [
        Bar(PAUSE, outcome.pause_seconds, "<=", round(longest, 3), " s"),
        Bar("steps lost", outcome.lost, "<=", 0),
        Bar("mass error", outcome.mass_error, "<=", EXACT),
        Bar("apart", outcome.apart, "<=", AGREED),
        Bar("memory", outcome.memory_mib, "<=", GROWTH, " MiB"),
    ]
    if undisturbed is not None:
        found.append(Bar(LOSS, outcome.loss, "<=", round(TIMES * undisturbed.loss, 4)))
    return found


def _lives(swarm: Swarm, rank: int) -> list[tuple[list[float], list[int]]]:
    """Return the times and numbers of a rank's steps, for each of its processes."""
    starts = [life["time"] for life in swarm.lives() if life["rank"] == rank]
    rows = lines(swarm.directory(rank) / "metrics.jsonl")
    found = []
    for start, end in zip(starts, [*starts[1:], float("inf")], strict=True):
        own = [row for row in rows if start <= row["time"] < end]
        if own:
            found.append(([row["time"] for row in own], [int(row["step"]) for row in own]))
    return found


def mass(swarm: Swarm) -> tuple[float, float]:
    """Return the error of the survivors' mass, and how much of all that there was they do not hold.

    With a grid each row is a swarm of its own, whose ranks are the numbers of replicas.
    """
    found = [_mass(swarm, row) for row in range(swarm.rows)]
    return max(error for error, _ in found), sum(lost for _, lost in found)


def _mass(swarm: Swarm, row: int) -> tuple[float, float]:
    rows = swarm.rows
    held, spoilt, shards = 0.0, 0.0, 1
    lives: set[_Life] = set()
    flows: dict[_Life, dict[str, dict[_Key, float]]] = {}
    for directory in swarm.directories():
        if int(directory.name.removeprefix("rank-")) % rows != row:
            continue
        for kind, origin, destination, sequence, shard, weight in lines(directory / "books.jsonl"):
            shards = max(shards, shard + 1)
            key = tuple(origin), tuple(destination), sequence
            pages = flows.setdefault(key[1] if kind == "Booked" else key[0], _pages())
            if key in pages[kind]:
                return float("inf"), 0.0  # the same parcel twice
            pages[kind][key] = weight
        summary = _summary(directory)
        if summary is not None and "weight_left" in summary:
            lives.add((summary["rank"] // rows, summary["incarnation"]))
            kept = summary["weight_left"] + summary["weight_unanswered"]
            held += kept
            # What it says that it wrote off when it left, beyond what it still has: such as NaN, which nobody takes.
            said = [event["written_off"] for event in lines(directory / "events.jsonl") if event["event"] == "left"]
            spoilt += max(0.0, said[-1] - kept) if said else 0.0
    expected = len(lives) - spoilt
    for life in lives:
        pages = flows.get(life, _pages())
        for key, weight in pages["Booked"].items():
            if key[0] not in lives:
                expected += weight / shards
            elif not any(key in flows.get(key[0], _pages())[kind] for kind in ("Released", "TakenBack")):
                held -= weight / shards  # its sender has not heard, and counts it as unanswered
        expected -= sum(weight / shards for key, weight in pages["Released"].items() if key[1] not in lives)
    known = [life for life in swarm.lives() if life["rank"] % rows == row]
    ever = {(life["rank"] // rows, life["incarnation"]) for life in known} | lives | set(flows)
    return abs(held - expected), len(ever) - held


def _pages() -> dict[str, dict[_Key, float]]:
    return {"Booked": {}, "Released": {}, "TakenBack": {}}


def _summary(directory: Path) -> dict[str, Any] | None:
    path = directory / "summary.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def _apart(swarm: Swarm, rank: int) -> float:
    found = [event["disagreement"] for event in swarm.events(rank, "consensus")]
    return float(found[-1]) if found and isinstance(found[-1], int | float) else float("inf")


def _accuracy(log: Path) -> float:
    found = _RESULT.findall(log.read_text(errors="replace"))
    return float(found[-1]) if found else 0.0


def _loss(path: Path) -> float:
    return float(path.read_text()) if path.exists() else float("inf")


def _growth(swarm: Swarm, rank: int) -> float:
    sizes = [(at, size) for at, one, size in swarm.memory if one == rank]
    before = [size for at, size in sizes if at <= swarm.fault_at][-1:]
    after = [size for at, size in sizes if at > swarm.fault_at]
    return float(max(after) - before[0]) if before and after else 0.0
