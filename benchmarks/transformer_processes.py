"""Whether real processes of gossip train a transformer as well as torch's DistributedDataParallel.

    python -m benchmarks.transformer_processes [--quick] [--json] [--size base|small] [--algorithms sgp osgp ...]
        [--rate 0.004] [--steps 500] [--seeds 3]

Four processes on this machine, each with its own part of Python's sources, the same for all methods: `benchmarks.gpt`,
AdamW, clipping, warm-up and cosine, 12 x 64 characters per process and step, as in `benchmarks.transformers`. The rate
is meant to be all-reduce's best, which that benchmark chooses: give it by ``--rate``. DDP clips the averaged gradient,
peers their own. The figure is the validation loss of what all agree on: DDP's model, and the average after
``peer.consensus()``; *own* is rank 0's model before that.

Bar: the mean gap to DDP is at most 0.05. ``--quick`` is ``small``, 60 steps, one seed, and no bar. The default takes
about 4 CPU minutes per method and seed.
"""

from __future__ import annotations

import sys
from statistics import fmean

from benchmarks.bars import Bar, finish, parser_of, table
from benchmarks.processes import Answer
from benchmarks.swarms import Swarm

__all__ = ["main"]

N = 4
#: Provisional: small's is the better of two in 100 steps of `benchmarks.transformers --quick`, base's the better of two
#: that were tried with a script like it. To be replaced by what `benchmarks.transformers --peers 4` chooses.
RATES = {"small": 0.006, "base": 0.004}
SEEDS = (20, 21, 22)
GAP = 0.05


def main(arguments: list[str] | None = None) -> bool:
    """Print the figures and return whether the bars hold."""
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="the small model, 60 steps, one seed")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--size", choices=list(RATES), default="base", help="of the model (default: base)")
    parser.add_argument("--algorithms", nargs="+", default=["sgp", "osgp"], help="as `gossip launch` takes them")
    parser.add_argument("--rate", type=float, help="of all methods (default: a provisional one)")
    parser.add_argument("--steps", type=int, default=500, help="of each process (default: 500)")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many (default: 3)")
    asked = parser.parse_args(arguments)
    size, steps, count = ("small", 60, 1) if asked.quick else (asked.size, asked.steps, asked.seeds)
    if min(steps, count) < 1:
        parser.error("--steps and --seeds are at least 1")
    rate = asked.rate or RATES[size]
    seeds = range(SEEDS[0], SEEDS[0] + count)
    methods = ["ddp", *asked.algorithms]
    found: dict[str, list[Answer]] = {name: [] for name in methods}
    with Swarm(N, patience=3600.0) as swarm:
        for seed in seeds:
            for name in methods:
                task = {"size": size, "seed": seed, "steps": steps, "schedule": "cosine", "lr": rate}
                answer = swarm.run("characters", name, {"seed": seed}, **task)[0]
                found[name].append(answer)
                said = f"loss {answer['loss']:.3f} after {answer['seconds']:.0f} s"
                print(f"  {name}, seed {seed}: {said}", file=sys.stderr, flush=True)
    rows, bars = [], []
    for name, answers in found.items():
        gaps = [one["loss"] - other["loss"] for one, other in zip(answers, found["ddp"], strict=True)]
        rows.append(
            [
                name,
                *(f"{answer['loss']:.3f}" for answer in answers),
                *("-" if name == "ddp" else f"{gap:+.3f}" for gap in (*gaps, fmean(gaps))),
                f"{fmean(answer['own'] for answer in answers):.3f}",
                f"{fmean(answer['seconds'] for answer in answers):.0f}",
            ]
        )
        if name != "ddp":
            bars.append(Bar(f"{name}: mean gap to ddp", fmean(gaps), "<=", GAP))
    labels = [f"seed {seed}" for seed in seeds]
    head = ["method", *labels, *(f"gap {seed}" for seed in seeds), "mean gap", "own", "seconds"]
    text = f"transformer_processes: {size} GPT, {N} processes, {steps} steps, rate {rate:g}; validation loss\n"
    text += table(head, rows)
    return finish(text, {"runs": found}, [] if asked.quick else bars, as_json=asked.json)


if __name__ == "__main__":
    raise SystemExit(not main())
