"""What rare averages cost a transformer with AdamW: the loss of `outer` against h and bytes, beside all-reduce.

    python -m benchmarks.outer_transformers [--quick] [--json] [--peers 8] [--steps 512] [--seeds 3] [--h 8 16 32]
        [--jobs 1] [--cache FILE]

The task, the model, the optimizer and the samples are those of `benchmarks.transformers`, size ``small``: a GPT of 109k
parameters learns Python sources in virtual time. `outer` makes h steps of AdamW between two averages and sends int4.
Both have all-reduce's best rate of `benchmarks.transformers`. The outer parameters are the same for every h, chosen by
seed 10 with h = 32; docs/results/bytes.md has what else was tried. Reported seeds are 20, 21 and 22.

The figure is the validation loss of the average model and its *gap* to all-reduce's with the same seed. Bytes are those
on the wire per peer and step, headers included; *fewer* is what a ring all-reduce in float32 would send, 2 (n-1)/n x 4
bytes x parameters, over them. Bar: the mean gap with h = 32 is at most 0.1. ``--quick`` has 64 steps of 4 peers, h = 8,
one seed, and no bar. Finished runs are kept in the cache, which does not know that the code of a method changed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.bars import Bar, finish, parser_of, table
from benchmarks.study.cache import Cache, Results
from benchmarks.study.run import Run
from benchmarks.study.tasks import TASKS
from benchmarks.transformers import BASELINE, BATCH, SEEDS, loss
from gossip import policies

__all__ = ["compared", "main", "run"]

TASK = "characters-small"
#: All-reduce's, and outer's.
RATES = {BASELINE: 0.006, "outer": 0.006}
OUTER = "mu=0.5,eta=1.0"
CODEC = "int4"
EVERY = (8, 16, 32)
GAP = 0.1


def run(h: int, peers: int, steps: int, seed: int) -> Run:
    """Return one run; h = 0 is all-reduce."""
    algorithm = f"outer:h={h},{OUTER}" if h else BASELINE
    topology = policies.parse(algorithm).default_topology
    rate = RATES["outer" if h else BASELINE]
    base = Run(algorithm, topology, peers, rate, seed, steps * peers * BATCH, task=TASK, batch=BATCH)
    return base.but(optimizer="adamw", clip=1.0, schedule="cosine", compress=CODEC if h else "none")


def ring_bytes(peers: int) -> float:
    """Return what a ring in float32 sends per peer and step."""
    return 2 * (peers - 1) / peers * 4 * sum(one.numel() for one in TASKS[TASK]().model(0).parameters())


def compared(
    every: Sequence[int], peers: int, steps: int, seeds: Sequence[int], results: Results
) -> tuple[list[list[str]], dict[int, float]]:
    """Return a row for all-reduce and for each h, and the mean gaps."""
    baseline = [loss(results[run(0, peers, steps, seed)]) for seed in seeds]
    rows, means = [], {}
    for h in (0, *every):
        runs = [run(h, peers, steps, seed) for seed in seeds]
        each = [loss(results[one]) for one in runs]
        gaps = [one - other for one, other in zip(each, baseline, strict=True)]
        means[h] = fmean(gaps)
        error = stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
        sent = fmean(results[one].bytes for one in runs) / (peers * steps)
        rows.append(
            [
                runs[0].algorithm,
                f"{runs[0].rate:g}",
                *(f"{one:.3f}" for one in each),
                f"{fmean(each):.3f}",
                f"{means[h]:+.3f} ± {error:.3f}" if h else "-",
                f"{sent:,.0f}",
                f"{ring_bytes(peers) / sent:.1f}",
            ]
        )
    return rows, means


def main(arguments: list[str] | None = None) -> bool:
    """Run what is asked for, print the table and return whether the bar holds."""
    default = Path(tempfile.gettempdir()) / "gossip-outer-transformers.jsonl"
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="4 peers, 64 steps, h = 8, one seed")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--peers", type=int, default=8, help="(default: 8)")
    parser.add_argument("--steps", type=int, default=512, help="of each peer (default: 512)")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many are reported (default: 3)")
    parser.add_argument("--h", type=int, nargs="+", default=list(EVERY), help="steps from one average to the next")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--cache", type=Path, default=default, help=f"what has been run (default: {default})")
    asked = parser.parse_args(arguments)
    if min(asked.peers, asked.steps, asked.seeds, asked.jobs, *asked.h) < 1:
        parser.error("--peers, --steps, --seeds, --jobs and --h are at least 1")
    every, peers, steps, count = ([8], 4, 64, 1) if asked.quick else (asked.h, asked.peers, asked.steps, asked.seeds)
    seeds = range(SEEDS[0], SEEDS[0] + count)
    wanted = [run(h, peers, steps, seed) for seed in seeds for h in (0, *every)]
    cache = Cache(asked.cache)
    cache.fill(wanted, asked.jobs, "outer_transformers")
    results = cache.results(wanted)
    rows, gaps = compared(every, peers, steps, seeds, results)
    minutes = sum(one.cpu_seconds for one in results.values()) / 60
    text = f"outer_transformers: small GPT, {peers} peers, {steps} steps of {BATCH} x 64 characters each; "
    text += f"validation loss; {len(results)} runs, {minutes:.0f} CPU minutes\n"
    head = ["method", "rate", *(f"seed {seed}" for seed in seeds), "mean", "gap", "bytes per peer and step", "fewer"]
    bars = [Bar("h = 32: mean gap", gaps[32], "<=", GAP)] if 32 in gaps and not asked.quick else []
    figures = [{"run": one.key, "outcome": outcome.to_json()} for one, outcome in results.items()]
    return finish(text + table(head, rows), {"runs": figures}, bars, as_json=asked.json)


if __name__ == "__main__":
    os.nice(max(0, 10 - os.nice(0)))  # it takes long, and should not be in anybody's way
    raise SystemExit(not main())
