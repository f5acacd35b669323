"""Which learning rate suits each method best: those that `benchmarks.accuracy` trains with.

    python -m benchmarks.accuracy_rates [--quick] [--json]

Fashion-MNIST, eight processes, four rates with one seed, then the two best of them with another one; the best mean of
both is it. `benchmarks.accuracy` uses neither seed. torch's DistributedDataParallel chooses like all others. One row of
`benchmarks.accuracy` for each algorithm: its other rows take over that row's rate. The bars: each rate there is the
best here. ``--quick`` is 100 steps, and no bar.

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
#: The first sees all rates, the second the best of them.
SEEDS = (10, 11)
BEST = 2


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    if absent := missing():
        raise SystemExit(f"accuracy_rates: {absent}")
    steps = 100 if quick else STEPS
    methods = _one_of_each()
    each: dict[str, dict[float, list[float]]] = {method.name: {rate: [] for rate in RATES} for method in methods}
    runs: list[Run] = []
    for place, seed in enumerate(SEEDS):
        asked = [(method, rate) for method in methods for rate in _best(each[method.name], BEST if place else None)]
        runs += [Run(method.algorithm, seed, rate, steps, method.setup) for method, rate in asked]
        found = carried_out(runs, "accuracy-rates", more=seed != SEEDS[-1])
        for (method, rate), answer in zip(asked, found[-len(asked) :], strict=True):
            each[method.name][rate].append(answer["accuracy"])
    rows, bars = [], []
    for method in methods:
        accuracies = each[method.name]
        texts = [" ".join(f"{one:.2f}" for one in accuracies[rate]) for rate in RATES]
        best = _best(accuracies, 1)[0]
        mean = fmean(accuracies[best])
        rows.append([method.name, *texts, f"{mean:.2f}", f"{best:g}"])
        # One that was not among the best of the first seed has fewer of them, and cannot be it.
        tried = len(accuracies[method.rate]) == len(accuracies[best])
        below = mean - fmean(accuracies[method.rate]) if tried else float("inf")
        bars.append(Bar(f"{method.name}: {method.rate:g} below", below, "<=", 0.0))
    text = f"accuracy_rates: Fashion-MNIST, {N} processes, {steps} steps, seeds {SEEDS}; % of the test images\n"
    text += table(["method", *(f"{rate:g}" for rate in RATES), "mean", "best"], rows)
    return finish(text, {"accuracies": each}, [] if quick else bars, as_json=as_json)


def _best(accuracies: dict[float, list[float]], count: int | None) -> list[float]:
    """Return the ``count`` best rates, the best first, of those that were tried most often; None: all."""
    tried = max(len(values) for values in accuracies.values())
    rates = [rate for rate, values in accuracies.items() if len(values) == tried]
    return sorted(rates, key=lambda rate: -fmean(accuracies[rate] or [0.0]))[:count]


def _one_of_each() -> list[Method]:
    """Return the first row of each algorithm."""
    first: dict[str, Method] = {}
    for method in METHODS:
        first.setdefault(method.algorithm, method)
    return list(first.values())


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
