"""Whether two rounds in a step and mixed momentum train as well as all-reduce, with unequal data and with many peers.

    python -m benchmarks.rounds [--quick] [--json] [--cases unequal many-32 many-64 cnn-8 cnn-16 cnn-32]
        [--methods NAME ...] [--seeds 5] [--jobs 1] [--cache FILE]

A small network learns Fashion-MNIST in the study's swarm: the real core in virtual time on a fast network
(`benchmarks.study.swarm`). SGD with Nesterov's momentum of 0.9, batches of 16 per peer, and a rate that warms up and
then falls to a tenth along a cosine. Gossip sends int8. Methods with the same seed have the same model, the same deal
of the data and the same batches. The figure is the accuracy of the average model, and its *gap* to all-reduce's with
the same seed.

Each method has the best of the case's rates for itself, chosen with seed 100. In the cases ``cnn-8``, ``cnn-16`` and
``cnn-32``, a convolutional network and equal data, every method has all-reduce's best rate. Reported seeds are 0 to 4,
each with a deal of the data of its own, which no rate and no method was chosen by: for trials take others.

Bars: the mean gap of `sgp:rounds=2,momentum=mixed` is at least -0.5 points with 16 peers whose classes are dealt out by
a Dirichlet distribution of parameter 0.1 (``unequal``), and at least -0.3 points with 32 and with 64 peers that have
equal data (``many-32``, ``many-64``). With the convolutional network that of `sgp` is at least -0.3 points as well.
``--quick`` has 40 steps of one case, one rate and one seed, and no bar.

The first three cases take about 25 minutes of one core, the others 15 each. Finished runs are kept in the cache, so it
can be interrupted. The cache does not know that the code of a method changed: name another file then.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from benchmarks import fashion_data
from benchmarks.bars import Bar, finish, parser_of, table
from benchmarks.study.cache import Cache, Results
from benchmarks.study.run import Outcome, Run
from gossip import policies

__all__ = ["CASES", "Case", "chosen_rate", "compared", "main"]

BASELINE = "allreduce"
PROVEN = "sgp:rounds=2,momentum=mixed"
METHODS = ("sgp", PROVEN)
BATCH = 16
#: The seed that rates are chosen by, and those that are reported.
TUNING = 100
SEEDS = range(5)


@dataclass(frozen=True)
class Case:
    """Peers and their data."""

    peers: int
    #: As `Run` has it.
    dirichlet: float
    #: Of each peer.
    steps: int
    rates: Sequence[float]
    #: The least mean gap, in points.
    bar: float
    #: One of the study's.
    task: str = "fashion"
    #: Whether all methods have all-reduce's best rate, instead of each its own.
    carried: bool = False

    def run(self, algorithm: str, rate: float, seed: int) -> Run:
        """Return one run of this case."""
        gossips = algorithm != BASELINE
        topology = policies.parse(algorithm).default_topology
        samples = self.steps * self.peers * BATCH
        base = Run(algorithm, topology, self.peers, rate, seed, samples, batch=BATCH, dirichlet=self.dirichlet)
        return base.but(task=self.task, schedule="cosine", compress="int8" if gossips else "none")


#: All with 2.5 epochs of samples.
CASES = {
    "unequal": Case(16, 0.1, 600, (0.05, 0.1), -0.5),
    "many-32": Case(32, 0.0, 300, (0.1, 0.2), -0.3),
    "many-64": Case(64, 0.0, 150, (0.1, 0.2), -0.3),
    "cnn-8": Case(8, 0.0, 1200, (0.05, 0.1), -0.3, "fashion-cnn", carried=True),
    "cnn-16": Case(16, 0.0, 600, (0.05, 0.1), -0.3, "fashion-cnn", carried=True),
    "cnn-32": Case(32, 0.0, 300, (0.1, 0.2), -0.3, "fashion-cnn", carried=True),
}
QUICK = {"unequal": Case(16, 0.1, 40, (0.05,), -0.5)}


def accuracy(outcome: Outcome) -> float:
    """Return the accuracy in per cent, 0 where the run diverged."""
    return 0.0 if outcome.diverged else outcome.accuracy


def chosen_rate(case: Case, method: str, tuning: Results) -> float:
    """Return the rate with which the method is best in the runs that rates are chosen by."""
    return max(case.rates, key=lambda rate: accuracy(tuning[case.run(method, rate, TUNING)]))


def compared(case: Case, rates: dict[str, float], seeds: Sequence[int], results: Results) -> list[list[str]]:
    """Return a row for each method: accuracies, gaps to all-reduce and models sent per peer and step."""
    rows = []
    baseline = _accuracies(case, BASELINE, rates, seeds, results)
    for method, rate in rates.items():
        each = _accuracies(case, method, rates, seeds, results)
        gaps = [one - other for one, other in zip(each, baseline, strict=True)]
        error = stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
        gap = "-" if method == BASELINE else f"{fmean(gaps):+.2f} ± {error:.2f}"
        sent = fmean(results[case.run(method, rate, seed)].bytes for seed in seeds) / (case.peers * case.steps)
        rows.append([method, f"{rate:g}", *(f"{one:.2f}" for one in each), f"{fmean(each):.2f}", gap, f"{sent:,.0f}"])
    return rows


def _accuracies(
    case: Case, method: str, rates: dict[str, float], seeds: Sequence[int], results: Results
) -> list[float]:
    return [accuracy(results[case.run(method, rates[method], seed)]) for seed in seeds]


def main(arguments: list[str] | None = None) -> bool:
    """Run what is asked for, print the tables and return whether the bars hold."""
    if absent := fashion_data.missing():
        raise SystemExit(f"rounds: {absent}")
    default = Path(tempfile.gettempdir()) / "gossip-rounds.jsonl"
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="one case of 40 steps, one rate, one seed")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="which (default: all)")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="as `gossip launch` takes them")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many are reported (default: 5)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--cache", type=Path, default=default, help=f"what has been run (default: {default})")
    asked = parser.parse_args(arguments)
    if asked.seeds < 1:
        parser.error("--seeds is at least 1")
    cases = QUICK if asked.quick else {name: CASES[name] for name in asked.cases}
    seeds = range(1 if asked.quick else asked.seeds)
    methods, cache = (BASELINE, *asked.methods), Cache(asked.cache)
    parts, bars, everything = [], [], Results()
    head = ["method", "rate", *(f"seed {seed}" for seed in seeds), "mean", "gap", "bytes per peer and step"]
    for name, case in cases.items():
        tunes = (BASELINE,) if case.carried else methods
        tuning = [case.run(method, rate, TUNING) for method in tunes for rate in case.rates]
        cache.fill(tuning if len(case.rates) > 1 else [], asked.jobs, f"{name}, rates")
        tuned = cache.results(tuning)
        rates = {
            method: chosen_rate(case, BASELINE if case.carried else method, tuned)
            if len(case.rates) > 1
            else case.rates[0]
            for method in methods
        }
        reported = [case.run(method, rate, seed) for seed in seeds for method, rate in rates.items()]
        cache.fill(reported, asked.jobs, name)
        results = cache.results(reported)
        everything |= {**tuned, **results}
        network = ", convolutional" if case.carried else ""
        what = f"Dirichlet {case.dirichlet:g}" if case.dirichlet else "equal data"
        rows = compared(case, rates, seeds, results)
        parts.append(
            f"{name}: {case.peers} peers, {what}{network}, {case.steps} steps; accuracy in %\n{table(head, rows)}"
        )
        for method in methods[1:]:
            if method == PROVEN or case.carried:
                found, base = (_accuracies(case, one, rates, seeds, results) for one in (method, BASELINE))
                bars.append(Bar(f"{name}: mean gap of {method}", fmean(found) - fmean(base), ">=", case.bar))
    minutes = sum(one.cpu_seconds for one in everything.values()) / 60
    text = "\n\n".join([f"rounds: {len(everything)} runs, {minutes:.0f} CPU minutes", *parts])
    figures = [{"run": run.key, "outcome": outcome.to_json()} for run, outcome in everything.items()]
    return finish(text, {"runs": figures}, [] if asked.quick else bars, as_json=asked.json)


if __name__ == "__main__":
    os.nice(max(0, 10 - os.nice(0)))  # it takes long, and should not be in anybody's way
    raise SystemExit(not main())
