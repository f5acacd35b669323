"""What a step of each method is worth, in steps of all-reduce: the efficiencies that `gossip.choosing` chooses by.

    python -m benchmarks.step_worth [--quick] [--json] [--tasks fashion characters] [--seeds 2] [--jobs 1]
        [--cache FILE] [--no-runs]

Eight peers in virtual time on a network that costs nothing (`benchmarks.study`), so that only the exchange itself
differs. All-reduce is also run with fewer steps, each run with its own cosine, which gives its validation loss as a
function of steps. A method's *worth* is the number of steps after which all-reduce has the method's loss, divided by
the method's own steps: 0.8 means that all-reduce needs 80 steps for what the method gets in 100. Steps between two runs
of all-reduce are interpolated, the loss being linear in the logarithm of the steps; beyond the longest and the shortest
run the worth is that of the run.

Two tasks: Fashion-MNIST with SGD (25,450 parameters, 400 steps), and the GPT of `benchmarks.transformers` with AdamW
(108,864 parameters, 200 steps). All methods have one rate for a task, which was not chosen for any of them.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.bars import finish, parser_of, table
from benchmarks.study.cache import Cache
from benchmarks.study.run import Run
from gossip import policies

__all__ = ["METHODS", "Trained", "main", "worth"]

PEERS = 8
SEEDS = (30, 31)
BASELINE = "allreduce"
#: The steps of the runs of all-reduce, in parts of a whole run.
PARTS = (1.0, 0.7, 0.5, 0.3, 0.2)
#: Seconds that a message takes: hardly any.
_DELAY = (1e-6, 1e-6)
#: How the model is cut where a share of it goes.
_SHARDS = 16


@dataclass(frozen=True)
class Trained:
    """A method as it is run here: an algorithm, a codec, and the share of the shards that goes with a step."""

    algorithm: str
    compress: str = "none"
    share: float = 1.0

    @property
    def name(self) -> str:
        """The row of the table."""
        part = "" if self.share == 1 else f", 1/{1 / self.share:.0f} of the shards"
        return f"{self.algorithm}, {self.compress}{part}"


METHODS = (
    Trained("sgp"),
    Trained("sgp", "int8"),
    Trained("osgp", "int8"),
    Trained("osgp", "int8", 1 / 4),
    Trained("osgp", "int8", 1 / 16),
    Trained("outer:h=8", "int2"),
    Trained("outer:h=32", "int2"),
    Trained("sgp", "int8", 1 / 4),
    Trained("sgp", "int8", 1 / 16),
    Trained("noloco:h=8", "int8"),
    Trained("osgp", "int8", 1 / 2),
    Trained("osgp", "int8", 1 / 8),
)


@dataclass(frozen=True)
class Schooling:
    """A task, and how all methods train for it."""

    steps: int
    rate: float
    task: str
    batch: int
    optimizer: str = "sgd"
    clip: float = 0.0

    def run(self, method: Trained, seed: int, part: float = 1.0) -> Run:
        """Return a run, or one with a part of the steps."""
        return Run(
            method.algorithm,
            policies.parse(method.algorithm).default_topology,
            PEERS,
            self.rate,
            seed,
            round(self.steps * part) * PEERS * self.batch,
            task=self.task,
            batch=self.batch,
            optimizer=self.optimizer,
            clip=self.clip,
            schedule="cosine",
            compress=method.compress,
            share=method.share,
            shards=_SHARDS if method.share < 1 else 1,
            megabits=0.0,
            delay=_DELAY,
        )

    def runs(self, seed: int) -> list[Run]:
        """Return all runs with a seed."""
        reference = [self.run(Trained(BASELINE), seed, part) for part in PARTS]
        return reference + [self.run(method, seed) for method in METHODS]


TASKS = {
    "fashion": Schooling(400, 0.04, "fashion", 16),
    "characters": Schooling(200, 0.006, "characters-small", 12, "adamw", 1.0),
}


def worth(loss: float, reference: Sequence[tuple[float, float]]) -> float:
    """Return the part of all-reduce's steps after which it has this loss.

    Args:
        loss: of a method.
        reference: parts of the steps with all-reduce's loss after them, at least one.
    """
    ordered = sorted(reference)
    if loss >= ordered[0][1]:
        return ordered[0][0]
    best = ordered[0]
    for part, reached in ordered[1:]:
        if reached <= loss < best[1]:
            along = (best[1] - loss) / (best[1] - reached)
            return math.exp(math.log(best[0]) + along * math.log(part / best[0]))
        if reached < best[1]:
            best = part, reached
    return best[0]


def main(arguments: list[str] | None = None) -> bool:
    """Run what is asked for, print the table and return True: nothing is held against a bar."""
    asked = _parsed(arguments)
    seeds = range(SEEDS[0], SEEDS[0] + (1 if asked.quick else asked.seeds))
    chosen = {name: _short(TASKS[name]) if asked.quick else TASKS[name] for name in asked.tasks}
    runs = [run for one in chosen.values() for seed in seeds for run in one.runs(seed)]
    cache = Cache(asked.cache)
    if not asked.no_runs:
        cache.fill(runs, asked.jobs, "worth")
    found = cache.results(runs)
    if len(found) < len(runs):
        raise SystemExit(f"step_worth: {asked.cache} lacks {len(runs) - len(found)} of {len(runs)} runs")
    cells: dict[str, list[str]] = {Trained(BASELINE).name: [], **{method.name: [] for method in METHODS}}
    figures: dict[str, dict[str, float]] = {name: {} for name in chosen}
    for name, one in chosen.items():
        whole = [found[one.run(Trained(BASELINE), seed)].validation_loss for seed in seeds]
        cells[Trained(BASELINE).name] += [f"{fmean(whole):.3f}", "1"]
        for method in METHODS:
            losses = [found[one.run(method, seed)].validation_loss for seed in seeds]
            each = [
                worth(
                    loss,
                    [(part, found[one.run(Trained(BASELINE), seed, part)].validation_loss) for part in PARTS],
                )
                for loss, seed in zip(losses, seeds, strict=True)
            ]
            figures[name][method.name] = fmean(each)
            spread = "" if len(each) == 1 else f" ({' '.join(f'{value:.2f}' for value in each)})"
            cells[method.name] += [f"{fmean(losses):.3f}", f"{fmean(each):.2f}{spread}"]
    head = ["method", *(column for name in chosen for column in (f"{name}: loss", "worth"))]
    minutes = sum(one.cpu_seconds for one in found.values()) / 60
    text = f"step_worth: {PEERS} peers, seeds {seeds[0]} to {seeds[-1]}; {len(found)} runs, {minutes:.0f} CPU minutes\n"
    text += table(head, [[name, *row] for name, row in cells.items()])
    return finish(text, {"worth": figures}, [], as_json=asked.json)


def _short(one: Schooling) -> Schooling:
    return Schooling(one.steps // 5, one.rate, one.task, one.batch, one.optimizer, one.clip)


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    default = Path(tempfile.gettempdir()) / "gossip-step-worth.jsonl"
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the steps, one seed")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), help="(default: both)")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many (default: 2)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--cache", type=Path, default=default, help=f"what has been run (default: {default})")
    parser.add_argument("--no-runs", action="store_true", help="make the table of what has been run already")
    asked = parser.parse_args(arguments)
    if min(asked.seeds, asked.jobs) < 1:
        parser.error("--seeds and --jobs are at least 1")
    return asked


if __name__ == "__main__":
    os.nice(max(0, 10 - os.nice(0)))  # it takes long, and should not be in anybody's way
    raise SystemExit(not main())
