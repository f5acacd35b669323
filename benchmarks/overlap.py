"""What it saves, and what it costs, that the averages of `outer` travel while their peers go on.

    python -m benchmarks.overlap [--quick] [--json] [--seeds 3] [--jobs 1] [--cache FILE]

Eight peers learn Fashion-MNIST in virtual time (25,450 parameters, `benchmarks.study`): 400 steps of 16 samples and
0.1 s each, SGD with Nesterov's momentum of 0.9, a warm-up and then half a cosine down to a tenth, int2. Their links
carry 0.2 Mbit/s, so that an average takes as long as about five steps. ``wait=inf`` stands still meanwhile, ``wait=0``
goes on, and the default, 1, stands still for as long as the steps of the round took.

Nothing was chosen by these runs. ``--quick`` is one seed of 100 steps. Finished runs are kept in the cache.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.bars import finish, parser_of, table
from benchmarks.study.cache import Cache
from benchmarks.study.run import Run

__all__ = ["CASES", "main", "run"]

PEERS, STEPS, BATCH = 8, 400, 16
RATE = 0.03
SEEDS = (40, 41, 42)
#: The steps from one average to the next, and for how long a peer stands still.
CASES = tuple((h, wait) for h in (8, 28) for wait in ("inf", "1", "0"))


def run(h: int, wait: str, seed: int, steps: int) -> Run:
    """Return one run."""
    samples = steps * PEERS * BATCH
    base = Run(f"outer:h={h},wait={wait}", "one-peer-exponential", PEERS, RATE, seed, samples, batch=BATCH)
    return base.but(compress="int2", schedule="cosine", megabits=0.2)


def main(arguments: list[str] | None = None) -> bool:
    """Print the table."""
    default = Path(tempfile.gettempdir()) / "gossip-overlap.jsonl"
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed of 100 steps")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many (default: 3)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--cache", type=Path, default=default, help=f"what has been run (default: {default})")
    asked = parser.parse_args(arguments)
    if not 1 <= asked.seeds <= len(SEEDS) or asked.jobs < 1:
        parser.error(f"--seeds is from 1 to {len(SEEDS)}, --jobs at least 1")
    seeds, steps = (SEEDS[:1], 100) if asked.quick else (SEEDS[: asked.seeds], STEPS)
    wanted = {case: [run(*case, seed, steps) for seed in seeds] for case in CASES}
    cache = Cache(asked.cache)
    every = [one for runs in wanted.values() for one in runs]
    cache.fill(every, asked.jobs, "overlap")
    results = cache.results(every)
    rows = []
    for (h, wait), runs in wanted.items():
        found = [results[one] for one in runs]
        each = [one.accuracy for one in found]
        rows.append(
            [
                f"outer:h={h},wait={wait}",
                *(f"{one:.2f}" for one in each),
                f"{fmean(each):.2f}",
                f"{stdev(each):.2f}" if len(each) > 1 else "-",
                f"{fmean(one.virtual_seconds for one in found):.1f}",
                f"{fmean(one.bytes for one in found) / (PEERS * steps):,.0f}",
            ]
        )
    head = ["method", *(f"seed {seed}" for seed in seeds), "mean %", "sd", "seconds", "bytes per peer and step"]
    text = f"overlap: Fashion-MNIST, {PEERS} peers, {steps} steps of {BATCH} samples, virtual time; accuracy in %\n"
    figures = [{"run": one.key, "outcome": results[one].to_json()} for one in every]
    return finish(text + table(head, rows), {"runs": figures}, [], as_json=asked.json)


if __name__ == "__main__":
    os.nice(max(0, 10 - os.nice(0)))  # it takes long, and should not be in anybody's way
    raise SystemExit(not main())
