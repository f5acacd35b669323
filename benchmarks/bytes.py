"""How far bytes can be cut, and for how much accuracy: Fashion-MNIST, 8 processes, `outer` beside all-reduce.

    python -m benchmarks.bytes [--quick] [--json]

The task, the samples and the count of bytes are those of `benchmarks.accuracy`: what peers handed to their transports
while they trained, headers, answers and membership included, against the formula of a ring in float32. Bars, in the
mean over seeds and against DDP: 100 times fewer bytes within 0.7 points, 300 times fewer within 0.9. The rates of
`outer` are first guesses and were not chosen by `benchmarks.accuracy_rates`. ``--quick`` is one seed of 100 steps, and
no bar.

Finished runs are kept in ``$TMPDIR/gossip-benchmark-bytes.json`` until all are done, and not repeated.
"""

from __future__ import annotations

from statistics import fmean

from benchmarks.accuracy import DDP, SEEDS, Method, row
from benchmarks.bars import Bar, command, finish, table
from benchmarks.fashion_data import missing
from benchmarks.fashion_swarm import BATCH, STEPS, N, Run, carried_out, ring_bytes, sent

__all__ = ["METHODS", "main"]

_INT2 = {"compress": "int2"}
METHODS = (
    DDP,
    Method("outer, h=10, int2", "outer:h=10", 0.05, _INT2, points=0.7, fewer=100),
    Method("outer, h=28, int2", "outer:h=28", 0.05, _INT2, points=0.9, fewer=300),
)


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    if absent := missing():
        raise SystemExit(f"bytes: {absent}")
    seeds, steps = (SEEDS[:1], 100) if quick else (SEEDS, STEPS)
    runs = [Run(method.algorithm, seed, method.rate, steps, method.setup) for seed in seeds for method in METHODS]
    answers = carried_out(runs, "bytes")
    # Methods run in turns, seed by seed.
    found = {method.name: answers[index :: len(METHODS)] for index, method in enumerate(METHODS)}
    means = {name: fmean(run["accuracy"] for run in runs) for name, runs in found.items()}
    below = {name: means[DDP.name] - mean for name, mean in means.items()}
    fewer = {name: ring_bytes() / sent(runs) for name, runs in found.items()}
    labels = [f"seed {seed}" for seed in seeds]
    head = ["method", "rate", *labels, "mean", "sd", "to ddp", "kB/step", "fewer", "rank 0", "seconds", "moved"]
    text = f"bytes: Fashion-MNIST, {N} processes, {steps} steps of {BATCH} samples each; % of the test images\n"
    text += table(head, [row(one, found[one.name], -below[one.name], fewer[one.name]) for one in METHODS])
    bars = []
    for method in METHODS:
        if method.points is not None and method.fewer is not None:
            bars.append(Bar(f"{method.name}: below ddp", below[method.name], "<=", method.points, " points"))
            bars.append(Bar(f"{method.name}: fewer bytes", fewer[method.name], ">=", method.fewer, " times"))
    return finish(text, {"runs": found}, [] if quick else bars, as_json=as_json)


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
