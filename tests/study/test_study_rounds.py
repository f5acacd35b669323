"""The measurement of rounds: rates are chosen by one seed, and gaps are to all-reduce with the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from study_cases import outcome

from benchmarks import rounds
from benchmarks.rounds import BASELINE, CASES, PROVEN, SEEDS, TUNING, Case, chosen_rate, compared, main
from benchmarks.study.cache import Cache
from benchmarks.study.run import Run

CASE = Case(16, 0.1, 10, (0.05, 0.1), -0.5)


def test_a_rate_is_the_best_of_the_tuning_seed_and_one_that_diverged_never_is() -> None:
    found = {
        CASE.run("sgp", 0.05, TUNING): outcome(accuracy=80.0),
        CASE.run("sgp", 0.1, TUNING): outcome(accuracy=90.0, diverged=True),
    }
    assert chosen_rate(CASE, "sgp", found) == 0.05


def test_no_rate_is_chosen_by_a_reported_seed() -> None:
    assert TUNING not in SEEDS
    assert len(SEEDS) >= 5


def test_gaps_are_of_pairs_with_the_same_seed() -> None:
    rates = {BASELINE: 0.1, PROVEN: 0.05}
    found = {CASE.run(BASELINE, 0.1, seed): outcome(accuracy=80.0 + seed) for seed in (0, 1)}
    found |= {CASE.run(PROVEN, 0.05, seed): outcome(accuracy=79.5 + seed) for seed in (0, 1)}
    baseline, proven = compared(CASE, rates, (0, 1), found)
    assert baseline[:5] == [BASELINE, "0.1", "80.00", "81.00", "80.50"]
    assert proven[:6] == [PROVEN, "0.05", "79.50", "80.50", "80.00", "-0.50 ± 0.00"]


def test_methods_differ_in_the_method_and_the_codec_alone() -> None:
    """The same seed deals the same data, so a gap is the method's."""
    for case in CASES.values():
        one, other = (case.run(name, 0.1, 0) for name in (BASELINE, PROVEN))
        assert other.but(algorithm=BASELINE, topology=one.topology, compress="none") == one
        assert (one.schedule, one.momentum, other.compress) == ("cosine", 0.9, "int8")


def test_carried_rates_are_chosen_by_all_reduce_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gossip would do better with 0.2 here, and trains with 0.1."""
    asked: list[Run] = []

    def fill(self: Cache, runs: Sequence[Run], jobs: int, title: str) -> None:
        del jobs, title
        asked.extend(runs)
        for run in runs:
            self._known[run.key] = outcome(accuracy=90.0 if (run.algorithm == BASELINE) == (run.rate == 0.1) else 80.0)

    monkeypatch.setattr(Cache, "fill", fill)
    monkeypatch.setattr(rounds.fashion_data, "missing", lambda: None)
    assert not main(["--cases", "cnn-32", "--seeds", "2", "--cache", str(tmp_path / "cache")]), "10 points below"
    assert {run.rate for run in asked if run.seed != TUNING} == {0.1}
    assert {run.algorithm for run in asked if run.seed == TUNING} == {BASELINE}
    assert {run.task for run in asked} == {"fashion-cnn"}
