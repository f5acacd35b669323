"""Which learning rate suits each method best: those that `benchmarks.accuracy` trains with.

    python -m benchmarks.accuracy_rates [--quick] [--json]

Fashion-MNIST, eight processes, four rates, two seeds that `benchmarks.accuracy` does not use; torch's
DistributedDataParallel chooses like all others. One row of `benchmarks.accuracy` for each algorithm: its other rows
take over that row's rate. The bars: each rate there is the best of these here. ``--quick`` is one seed of 100 steps,
and no bar.

Finished runs are kept in ``$TMPDIR/gossip-benchmark-accuracy-rates.json`` until all are done, and not repeated.
"""

from __future__ import annotations

from statistics import fmean

from benchmarks.accuracy import METHODS, Method
from benchmarks.bars import Bar, command, finish, table
from benchmarks.fashion_data import missing
from benchmarks.fashion_swarm import STEPS, N, Run, carried_out

__all__ = ["main"]

RATES = (0.05, 0.08, 0.12, 0.18)
SEEDS = (10, 11)


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    if absent := missing():
        raise SystemExit(f"accuracy_rates: {absent}")
    seeds, steps = (SEEDS[:1], 100) if quick else (SEEDS, STEPS)
    methods = _one_of_each()
    runs = [
        Run(method.algorithm, seed, rate, steps, method.setup) for seed in seeds for method in methods for rate in RATES
    ]
    found = {run.key: answer["accuracy"] for run, answer in zip(runs, carried_out(runs, "accuracy-rates"), strict=True)}
    rows, bars, each = [], [], {}
    for method in methods:
        accuracies = {
            rate: [found[Run(method.algorithm, seed, rate, steps, method.setup).key] for seed in seeds]
            for rate in RATES
        }
        means = {rate: fmean(values) for rate, values in accuracies.items()}
        best = max(means, key=lambda rate: means[rate])
        texts = [f"{means[rate]:.2f} ({' '.join(f'{one:.2f}' for one in accuracies[rate])})" for rate in RATES]
        rows.append([method.name, *texts, f"{best:g}"])
        bars.append(Bar(f"{method.name}: {method.rate:g} below the best", means[best] - means[method.rate], "<=", 0.0))
        each[method.name] = accuracies
    text = f"accuracy_rates: Fashion-MNIST, {N} processes, {steps} steps, seeds {seeds}; % of the test images\n"
    text += table(["method", *(f"{rate:g}" for rate in RATES), "best"], rows)
    return finish(text, {"accuracies": each}, [] if quick else bars, as_json=as_json)


def _one_of_each() -> list[Method]:
    """Return the first row with a bar, or that counts for one, of each algorithm."""
    first: dict[str, Method] = {}
    for method in METHODS:
        first.setdefault(method.algorithm, method)
    return list(first.values())


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
