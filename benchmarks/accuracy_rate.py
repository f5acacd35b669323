"""Which learning rate suits all-reduce best: the one that `benchmarks.accuracy` gives to every method.

    python -m benchmarks.accuracy_rate [--quick] [--json]

Fashion-MNIST, eight processes, torch's DistributedDataParallel, four rates, two seeds that `benchmarks.accuracy` does
not use. The bar: the rate there is the best of these. ``--quick`` is one seed of 100 steps, and no bar.
"""

from __future__ import annotations

from statistics import fmean

from benchmarks.accuracy import RATE
from benchmarks.bars import Bar, command, finish, table
from benchmarks.fashion_data import missing
from benchmarks.fashion_swarm import STEPS, N, Run, carried_out

__all__ = ["main"]

RATES = (0.05, 0.08, 0.12, 0.18)
SEEDS = (10, 11)


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bar holds."""
    if absent := missing():
        raise SystemExit(f"accuracy_rate: {absent}")
    seeds, steps = (SEEDS[:1], 100) if quick else (SEEDS, STEPS)
    runs = [Run("ddp", seed, rate, steps) for rate in RATES for seed in seeds]
    found = [answer["accuracy"] for answer in carried_out(runs, "accuracy-rate")]
    each = {rate: found[index * len(seeds) :][: len(seeds)] for index, rate in enumerate(RATES)}
    means = {rate: fmean(values) for rate, values in each.items()}
    rows = [[f"{rate:g}", *(f"{one:.2f}" for one in each[rate]), f"{means[rate]:.2f}"] for rate in RATES]
    text = f"accuracy_rate: Fashion-MNIST, {N} processes, ddp, {steps} steps; % of the test images\n"
    text += table(["rate", *(f"seed {seed}" for seed in seeds), "mean"], rows)
    others = max(mean for rate, mean in means.items() if rate != RATE)
    bar = Bar(f"rate {RATE:g}: above the best of the others", means[RATE] - others, ">=", 0.0, " points")
    return finish(text, {"accuracies": each}, [] if quick else [bar], as_json=as_json)


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
