"""The measurement of rounds: rates are chosen by one seed, and gaps are to all-reduce with the same seed."""

from __future__ import annotations

from study_cases import outcome

from benchmarks.rounds import BASELINE, CASES, PROVEN, SEEDS, TUNING, Case, chosen_rate, compared

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
