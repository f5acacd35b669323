"""What a slow link costs in loss: each method trains for the same virtual seconds, and the loss in the end counts.

    python -m benchmarks.slow_link_loss [--quick] [--json] [--ratios 2.1 8.4] [--methods "osgp auto" ...]
        [--mbit 50] [--seeds 2] [--jobs 1] [--cache FILE]

Eight peers in virtual time (`benchmarks.study`) on links of 50 Mbit/s train Fashion-MNIST with SGD and a cosine. The
*ratio* says how slow the link is: how many steps it takes to send a model in float32. 2.1 is that of 6.25 MiB and steps
of half a second, as in `benchmarks.slow_network`. A short run first shows how long the steps of a method take, a longer
one where the codec is ``auto``. Then the method trains for as many steps as fit into the time of 400 steps without any
exchange, with a cosine that ends there. *Bytes* are those of a step, in per cent of a model in float32. Methods are
written ``ALGORITHM CODEC``. The rate is that of `benchmarks.step_worth`, which has other seeds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.bars import finish, parser_of, table
from benchmarks.study.cache import Cache
from benchmarks.study.run import Outcome, Run
from gossip import policies

__all__ = ["METHODS", "lasting", "main", "run_of"]

PEERS, BATCH, RATE = 8, 16, 0.04
#: Bytes of the model of the study's task.
MODEL = 25_450 * 4
STEPS, PILOT = 400, 80
RATIOS = (2.1, 8.4)
SEED = 40
METHODS = (
    "allreduce",
    "allreduce int8",
    "sgp",
    "sgp int8",
    "sgp auto",
    "osgp",
    "osgp int8",
    "osgp auto",
    "outer:h=8 int2",
)


def run_of(method: str, ratio: float, seed: int, steps: int, mbit: float) -> Run:
    """Return a run of a number of steps."""
    algorithm, _, codec = method.partition(" ")
    return Run(
        algorithm,
        policies.parse(algorithm).default_topology,
        PEERS,
        RATE,
        seed,
        steps * PEERS * BATCH,
        schedule="cosine",
        step_seconds=MODEL * 8 / (mbit * 1e6) / ratio,
        megabits=mbit,
        delay=(1e-4, 1e-4),
        compress=codec or "none",
        # Only what may be pushed in parts is cut.
        shards=16 if codec == "auto" else 1,
    )


def lasting(pilot: Run, outcome: Outcome, steps: int) -> int:
    """Return how many steps fit into the time of a number of steps without an exchange."""
    made = pilot.samples / pilot.batch / pilot.peers
    return max(1, round(steps * pilot.step_seconds / (outcome.virtual_seconds / made)))


def main(arguments: list[str] | None = None) -> bool:
    """Run what is asked for, print the table and return True: nothing is held against a bar."""
    asked = _parsed(arguments)
    steps, pilot = (STEPS // 4, PILOT // 4) if asked.quick else (STEPS, PILOT)
    seeds = range(SEED, SEED + (1 if asked.quick else asked.seeds))
    cache = Cache(asked.cache)
    cases = [(method, ratio) for ratio in asked.ratios for method in asked.methods]
    # A choice by measuring takes a while to settle, so the first steps of such a method tell little.
    lengths = {method: steps if method.endswith(" auto") else pilot for method in asked.methods}
    pilots = {case: run_of(*case, SEED, lengths[case[0]], asked.mbit) for case in cases}
    cache.fill(pilots.values(), asked.jobs, "pilots")
    known = cache.results(pilots.values())
    found: dict[tuple[str, float], list[Run]] = {}
    for case, first in pilots.items():
        length = lasting(first, known[first], steps)
        found[case] = [run_of(*case, seed, length, asked.mbit) for seed in seeds]
    wanted = [run for runs in found.values() for run in runs]
    cache.fill(wanted, asked.jobs, "runs")
    results = cache.results(wanted)
    rows = [[method, _cell(ratio), *_row(runs, results)] for (method, ratio), runs in found.items()]
    head = ["method", "ratio", "steps", "step", "bytes", "seconds", "loss", "accuracy"]
    minutes = sum(one.cpu_seconds for one in (*known.values(), *results.values())) / 60
    text = f"slow_link_loss: {PEERS} peers on {asked.mbit:g} Mbit/s, the virtual time of {steps} steps of computing, "
    text += f"seeds {seeds[0]} to {seeds[-1]}; {minutes:.0f} CPU minutes. Step: in times of its computing\n"
    figures = [{"run": run.key, "outcome": outcome.to_json()} for run, outcome in results.items()]
    return finish(text + table(head, rows), {"runs": figures}, [], as_json=asked.json)


def _cell(ratio: float) -> str:
    return f"{ratio:g}"


def _row(runs: list[Run], results: dict[Run, Outcome]) -> list[str]:
    outcomes = [results[run] for run in runs]
    made = runs[0].samples / BATCH / PEERS
    losses, accuracies = ([getattr(one, name) for one in outcomes] for name in ("validation_loss", "accuracy"))
    seconds = fmean(one.virtual_seconds for one in outcomes)
    sent = fmean(one.bytes for one in outcomes) / PEERS / made / MODEL
    spread = f" ± {stdev(losses):.3f}" if len(losses) > 1 else ""
    return [
        f"{made:.0f}",
        f"{seconds / made / runs[0].step_seconds:.2f}",
        f"{100 * sent:.1f}%",
        f"{seconds:.2f}",
        f"{fmean(losses):.3f}{spread}",
        f"{fmean(accuracies):.2f}",
    ]


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    default = Path(tempfile.gettempdir()) / "gossip-slow-link-loss.jsonl"
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the steps, one seed")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--ratios", type=float, nargs="+", default=list(RATIOS), help="steps that a model takes")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="(default: %(default)s)")
    parser.add_argument("--mbit", type=float, default=50.0, help="that a link carries (default: 50)")
    parser.add_argument("--seeds", type=int, default=2, help="how many (default: 2)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--cache", type=Path, default=default, help=f"what has been run (default: {default})")
    asked = parser.parse_args(arguments)
    if min(asked.seeds, asked.jobs) < 1 or min(asked.mbit, *asked.ratios) <= 0:
        parser.error("--seeds and --jobs are at least 1, --mbit and --ratios above 0")
    return asked


if __name__ == "__main__":
    os.nice(max(0, 10 - os.nice(0)))  # it takes long, and should not be in anybody's way
    raise SystemExit(not main())
