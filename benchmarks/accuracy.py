"""Whether gossip trains as well as all-reduce: Fashion-MNIST, 8 processes, the same samples for all methods.

    python -m benchmarks.accuracy [--quick] [--json]

A network of 106k parameters, SGD with Nesterov's momentum of 0.9, 600 steps of 32 samples per process, the same part of
the data, start and learning rate for sgp, osgp, adpsgd (on one-peer-exponential) and for gloo's all-reduce by torch's
DistributedDataParallel. Test accuracy of DDP's model, and of the average after ``peer.consensus()``; 3 seeds.

Bar: each of ours within 0.5 points of DDP in the mean over seeds. ``--quick`` is one seed of 100 steps, and no bar.
Finished runs are kept in ``$TMPDIR/gossip-benchmark-accuracy.json`` until all are done, and not repeated.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.bars import Bar, command, finish, table
from benchmarks.fashion_data import missing
from benchmarks.processes import Answer
from benchmarks.swarms import Swarm

__all__ = ["main"]

N = 8
METHODS = ("ddp", "sgp", "osgp", "adpsgd")
POINTS = 0.5
_BATCH, _LR = 32, 0.05


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    if absent := missing():
        raise SystemExit(f"accuracy: {absent}")
    seeds, steps = ([0], 100) if quick else ([0, 1, 2], 600)
    found = _runs(seeds, steps)
    means = {name: fmean(run["accuracy"] for run in found[name]) for name in METHODS}
    rows = [_row(name, found[name], means[name] - means["ddp"]) for name in METHODS]
    labels = [f"seed {seed}" for seed in seeds]
    head = ["method", *labels, "mean", "sd", "to ddp", "rank 0", "seconds", "stretch", "weights"]
    text = f"accuracy: Fashion-MNIST, {N} processes, {steps} steps of {_BATCH} samples each; % of the test images\n"
    text += table(head, rows)
    text += "\n  rank 0: its own model, before the average is taken. stretch: how much longer moves were made, for mass"
    text += "\n  that is on its way. weights: the least and the largest mean over its steps of any peer"
    bars = [Bar(f"{name} below ddp", means["ddp"] - means[name], "<=", POINTS, " points") for name in METHODS[1:]]
    return finish(text, {"runs": found}, [] if quick else bars, as_json=as_json)


def _row(name: str, runs: list[Answer], difference: float) -> list[str]:
    each = [run["accuracy"] for run in runs]
    lightest, heaviest = min(min(run["weights"]) for run in runs), max(max(run["weights"]) for run in runs)
    return [
        name,
        *(f"{one:.2f}" for one in each),
        f"{fmean(each):.2f}",
        f"{stdev(each):.2f}" if len(each) > 1 else "-",
        f"{difference:+.2f}",
        f"{fmean(run['own'] for run in runs):.2f}",
        f"{fmean(run['seconds'] for run in runs):.0f}",
        f"{fmean(run['stretch'] for run in runs):.3f}",
        f"{lightest:.2f}-{heaviest:.2f}",
    ]


def _runs(seeds: list[int], steps: int) -> dict[str, list[Answer]]:
    """Return what rank 0 says of each run, by method; methods run in turns."""
    kept = Path(tempfile.gettempdir()) / "gossip-benchmark-accuracy.json"
    done: dict[str, Any] = json.loads(kept.read_text()) if kept.is_file() else {}
    names = {(seed, name): f"{name} seed={seed} steps={steps}" for seed in seeds for name in METHODS}
    if todo := [key for key in names if names[key] not in done]:
        with Swarm(N, patience=900.0) as swarm:
            for seed, name in todo:
                answers = swarm.run("fashion", name, {"seed": seed}, seed=seed, steps=steps, batch=_BATCH, lr=_LR)
                first = answers[0]
                weights = [answer.get("weight", 1.0) for answer in answers]
                stretch = fmean(answer["stretch"] for answer in answers)
                done[names[seed, name]] = {**first, "stretch": stretch, "weights": weights}
                kept.write_text(json.dumps(done))
                told = f"{names[seed, name]}: {first['accuracy']:.2f}% after {first['seconds']:.0f} s"
                print(f"  {told}, moves {stretch:.3f}x", file=sys.stderr, flush=True)
    kept.unlink(missing_ok=True)
    return {name: [done[names[seed, name]] for seed in seeds] for name in METHODS}


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
