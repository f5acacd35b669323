"""Whether gossip with AdamW trains a transformer as well as all-reduce, with all-reduce's own settings.

    python -m benchmarks.transformers [--quick] [--json] [--size small|base] [--peers 4 8 16]
        [--algorithms sgp osgp ...] [--rates R ...] [--seeds 3] [--steps N] [--carried-only] [--optimizer adamw|muon]
        [--jobs 2] [--cache FILE] [--no-runs]

A GPT learns the next character of Python sources (`benchmarks.gpt`, `benchmarks.python_text`): AdamW with betas 0.9 and
0.99 and a weight decay of 0.1, gradients clipped to a norm of 1, a warm-up and then half a cosine down to a tenth of
the rate, 12 x 64 characters per peer and step. The swarm is the study's: the real core in virtual time on a fast
network (`benchmarks.study.swarm`). Methods with the same seed see the same samples and begin with the same model. The
figure is the validation loss of the average model, and its *gap* to all-reduce's with the same seed.

All-reduce's rate is the best of four in the mean of seeds 10 and 11, for each number of peers: the best one of a single
seed may be a rate at which other seeds fail. The first table has every method train with it, the second every method
with the best of the same four rates for itself, chosen by the same seeds. Reported seeds are 20, 21 and 22, which no
rate and no method was chosen by: for trials take others.

Bars: the mean gap is at most 0.05, in both tables, for each method and number of peers. ``--quick`` has 100 steps of
4 peers, two rates, one seed, and no bar.

``small`` has 109k parameters, ``base`` 808k. The default is ``small`` with 500 steps for 4 and 8 peers and 200 for 16:
about 100 minutes of one core in all, of which ``--carried-only``, the first table, takes half. ``base`` takes five
times as long. Finished runs are kept in the cache, so it can be interrupted. The cache does not know that the code of
a method changed: name another file then.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.bars import Bar, finish, parser_of, table
from benchmarks.study.cache import Cache
from benchmarks.study.run import Outcome, Run
from gossip import policies

__all__ = ["Trial", "Tuned", "main"]

BASELINE = "allreduce"
ALGORITHMS = ("sgp", "osgp")
#: From too low to too high for all-reduce.
RATES = {"small": (0.003, 0.006, 0.012, 0.024), "base": (0.002, 0.004, 0.008, 0.016)}
#: Steps of each peer.
STEPS = {4: 500, 8: 500, 16: 200}
#: The seeds that rates are chosen by, and those that are reported.
TUNING = (10, 11)
SEEDS = (20, 21, 22)
BATCH = 12
GAP = 0.05


@dataclass(frozen=True)
class Trial:
    """What is run: the model, the methods, and how much."""

    size: str
    peers: Sequence[int]
    algorithms: Sequence[str]
    rates: Sequence[float]
    seeds: Sequence[int]
    #: Steps of each peer; 0: as many as the number of peers allows.
    steps: int
    carried_only: bool
    optimizer: str = "adamw"

    def run(self, algorithm: str, peers: int, rate: float, seed: int) -> Run:
        """Return one run."""
        samples = (self.steps or STEPS.get(peers, min(STEPS.values()))) * peers * BATCH
        topology = policies.parse(algorithm).default_topology
        base = Run(algorithm, topology, peers, rate, seed, samples, task=f"characters-{self.size}", batch=BATCH)
        return base.but(optimizer=self.optimizer, clip=1.0, schedule="cosine")

    def tuning(self) -> list[Run]:
        """Return the runs that rates are chosen by, the longest first; none if there is one rate."""
        if len(self.rates) == 1:
            return []
        tuned = [BASELINE] if self.carried_only else [BASELINE, *self.algorithms]
        return [
            self.run(algorithm, peers, rate, seed)
            for peers in sorted(self.peers, reverse=True)
            for algorithm in tuned
            for rate in self.rates
            for seed in TUNING
        ]


@dataclass(frozen=True)
class Tuned:
    """The best rates, and what is run with them."""

    trial: Trial
    #: By algorithm and number of peers.
    best: dict[tuple[str, int], float]

    def rate(self, algorithm: str, peers: int, carried: bool) -> float:
        """Return all-reduce's best rate, or the method's own."""
        return self.best[BASELINE if carried else algorithm, peers]

    def runs(self, algorithm: str, peers: int, carried: bool) -> list[Run]:
        """Return the reported runs of a row of a table."""
        rate = self.rate(algorithm, peers, carried)
        return [self.trial.run(algorithm, peers, rate, seed) for seed in self.trial.seeds]

    def all_runs(self) -> list[Run]:
        """Return the reported runs of all rows, the longest first."""
        return [
            run
            for carried in ((True,) if self.trial.carried_only else (True, False))
            for peers in sorted(self.trial.peers, reverse=True)
            for algorithm in (BASELINE, *self.trial.algorithms)
            for run in self.runs(algorithm, peers, carried)
        ]


def loss(outcome: Outcome) -> float:
    """Return the validation loss, infinite where the run diverged."""
    return float("inf") if outcome.diverged else outcome.validation_loss


def tuned(trial: Trial, results: dict[Run, Outcome]) -> Tuned:
    """Return the rate with the lowest mean loss, for each method that was tried with several and number of peers."""
    if len(trial.rates) == 1:
        methods = (BASELINE, *trial.algorithms)
        return Tuned(trial, {(algorithm, peers): trial.rates[0] for algorithm in methods for peers in trial.peers})
    means: dict[tuple[str, int], dict[float, float]] = defaultdict(dict)
    for run in trial.tuning():
        means[run.algorithm, run.peers][run.rate] = _mean(trial, results, run.algorithm, run.peers, run.rate)
    return Tuned(trial, {case: min(rates, key=rates.__getitem__) for case, rates in means.items()})


def _mean(trial: Trial, results: dict[Run, Outcome], algorithm: str, peers: int, rate: float) -> float:
    return fmean(loss(results[trial.run(algorithm, peers, rate, seed)]) for seed in TUNING)


def _rates(trial: Trial, results: dict[Run, Outcome]) -> str:
    rows = []
    for algorithm, peers in dict.fromkeys((run.algorithm, run.peers) for run in trial.tuning()):
        losses = [_mean(trial, results, algorithm, peers, rate) for rate in trial.rates]
        rows.append([algorithm, str(peers), *(f"{one:.3f}" for one in losses)])
    text = table(["method", "n", *(f"{rate:g}" for rate in trial.rates)], rows)
    return f"validation loss by rate, mean of seeds {TUNING[0]} and {TUNING[1]}, which choose the rate\n{text}"


def _compared(chosen: Tuned, results: dict[Run, Outcome], carried: bool) -> tuple[str, list[Bar]]:
    rows, bars = [], []
    title = "with all-reduce's best rate" if carried else "each with its own best rate"
    for peers in chosen.trial.peers:
        baseline = [loss(results[run]) for run in chosen.runs(BASELINE, peers, carried)]
        for algorithm in (BASELINE, *chosen.trial.algorithms):
            each = [loss(results[run]) for run in chosen.runs(algorithm, peers, carried)]
            gaps = [one - other for one, other in zip(each, baseline, strict=True)]
            compared = [] if algorithm == BASELINE else [*(f"{gap:+.3f}" for gap in gaps), f"{fmean(gaps):+.3f}"]
            rate = f"{chosen.rate(algorithm, peers, carried):g}"
            cells = [*(f"{one:.3f}" for one in each), f"{fmean(each):.3f}"]
            rows.append([algorithm, str(peers), rate, *cells, *(compared or ["-"] * (len(gaps) + 1))])
            if algorithm != BASELINE:
                bars.append(Bar(f"{algorithm}, n = {peers}, {title}: mean gap", fmean(gaps), "<=", GAP))
    seeds = [f"seed {seed}" for seed in chosen.trial.seeds]
    head = ["method", "n", "rate", *seeds, "mean", *(f"gap {seed}" for seed in chosen.trial.seeds), "mean gap"]
    return f"{title}\n{table(head, rows)}", bars


def main(arguments: list[str] | None = None) -> bool:
    """Run what is asked for, print the tables and return whether the bars hold."""
    asked = _parsed(arguments)
    trial = (
        Trial("small", (4,), asked.algorithms, RATES["small"][1:3], SEEDS[:1], 100, asked.carried_only)
        if asked.quick
        else Trial(
            asked.size,
            asked.peers,
            asked.algorithms,
            asked.rates or RATES[asked.size],
            range(SEEDS[0], SEEDS[0] + asked.seeds),
            asked.steps,
            asked.carried_only or len(asked.rates) == 1,
            asked.optimizer,
        )
    )
    cache = Cache(asked.cache)
    tuning = _filled(cache, trial.tuning(), asked, "rates")
    chosen = tuned(trial, tuning)
    results = {**tuning, **_filled(cache, chosen.all_runs(), asked, "seeds")}
    parts, bars = [_rates(trial, tuning)] if tuning else [], []
    for carried in (True,) if trial.carried_only else (True, False):
        text, more = _compared(chosen, results, carried)
        parts.append(text)
        bars += more
    minutes = sum(one.cpu_seconds for one in results.values()) / 60
    steps = {peers: trial.run(BASELINE, peers, 1.0, 0).samples // peers // BATCH for peers in trial.peers}
    title = f"transformers: {trial.size} GPT, steps of {BATCH} x 64 characters per peer: "
    title += ", ".join(f"{count} with n = {peers}" for peers, count in steps.items())
    title += f"; {len(results)} runs, {minutes:.0f} CPU minutes"
    figures = [{"run": run.key, "outcome": outcome.to_json()} for run, outcome in results.items()]
    return finish("\n\n".join([title, *parts]), {"runs": figures}, [] if asked.quick else bars, as_json=asked.json)


def _filled(cache: Cache, runs: Iterable[Run], asked: argparse.Namespace, title: str) -> dict[Run, Outcome]:
    wanted = list(dict.fromkeys(runs))
    if not asked.no_runs:
        try:
            cache.fill(wanted, asked.jobs, title)
        except KeyboardInterrupt:
            raise SystemExit(f"interrupted; what is done is in {asked.cache}, and is not done again") from None
    found = cache.results(wanted)
    if len(found) < len(wanted):
        lacking = len(wanted) - len(found)
        raise SystemExit(f"transformers: {asked.cache} lacks {lacking} of {len(wanted)} runs: leave out --no-runs")
    return found


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    default = Path(tempfile.gettempdir()) / "gossip-transformers.jsonl"
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="4 peers, 100 steps, two rates, one seed")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--size", choices=list(RATES), default="small", help="of the model (default: small)")
    parser.add_argument("--peers", type=int, nargs="+", default=list(STEPS), help="numbers of peers")
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS), help="as `gossip launch` takes them")
    parser.add_argument("--rates", type=float, nargs="+", default=[], help="instead of the four; one is not chosen")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many are reported (default: 3)")
    parser.add_argument("--steps", type=int, default=0, help="of each peer (default: by the number of peers)")
    parser.add_argument("--carried-only", action="store_true", help="only with all-reduce's rate")
    parser.add_argument("--optimizer", choices=("adamw", "muon"), default="adamw", help="muon: of the blocks' matrices")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--cache", type=Path, default=default, help=f"what has been run (default: {default})")
    parser.add_argument("--no-runs", action="store_true", help="make the tables of what has been run already")
    asked = parser.parse_args(arguments)
    if min(asked.jobs, asked.seeds, *asked.peers) < 1 or asked.steps < 0:
        parser.error("--jobs, --seeds and --peers are at least 1, --steps at least 0")
    return asked


if __name__ == "__main__":
    os.nice(max(0, 10 - os.nice(0)))  # it takes long, and should not be in anybody's way
    raise SystemExit(not main())
