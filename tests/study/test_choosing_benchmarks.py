"""The benchmarks behind `auto`: what a step is worth, and how long methods train on a slow link."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import slow_link_loss, step_worth
from benchmarks.slow_link_loss import METHODS, lasting, run_of
from benchmarks.study.run import Outcome
from benchmarks.study.swarm import scenario_of
from gossip.choosing.worths import MEASURED

#: All-reduce's loss after parts of its steps.
REFERENCE = [(1.0, 1.0), (0.25, 3.0), (0.5, 2.0)]


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [(1.0, 1.0), (2.0, 0.5), (3.0, 0.25), (1.5, 0.5**0.5), (2.5, 0.125**0.5), (0.5, 1.0), (9.0, 0.25)],
)
def test_a_worth_is_interpolated_in_the_logarithm_of_steps_and_ends_with_what_was_run(
    loss: float, wanted: float
) -> None:
    assert step_worth.worth(loss, REFERENCE) == pytest.approx(wanted)


def test_a_run_of_all_reduce_that_is_worse_than_a_shorter_one_is_left_out() -> None:
    noisy = [(0.25, 3.0), (0.5, 2.0), (0.7, 2.2), (1.0, 1.0)]
    assert step_worth.worth(2.1, noisy) < 0.5
    assert 0.5 < step_worth.worth(1.5, noisy) < 1.0


def test_every_method_whose_worth_is_used_is_measured() -> None:
    measured = set()
    for one in step_worth.METHODS:
        name, _, h = one.algorithm.partition(":h=")
        measured.add((name, float(h) if h else one.share))
    assert {(method, kind) for method, points in MEASURED.items() for kind in points} <= measured


def test_the_ratio_is_the_steps_that_a_model_takes() -> None:
    run = run_of("osgp int8", 2.1, 40, 400, 50.0)
    scenario = scenario_of(run)
    assert scenario.bandwidth is not None
    assert slow_link_loss.MODEL / scenario.bandwidth == pytest.approx(2.1 * run.step_seconds)
    assert (run.compress, run.shards) == ("int8", 1)
    assert all(run_of(method, 2.1, 40, 10, 50.0).peers == 8 for method in METHODS)


def test_all_methods_train_for_the_same_time() -> None:
    pilot = run_of("osgp", 2.1, 40, 80, 50.0)
    outcome = Outcome(80, 0.5, [], [], False, 80 * 2 * pilot.step_seconds, (80, 80), 0, 0.0, 1.0, 1.0, 0.0, 1.0)
    assert lasting(pilot, outcome, 400) == 200


def test_tables_need_their_runs(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="lacks 34 of 34 runs"):
        step_worth.main(["--no-runs", "--tasks", "fashion", "--cache", str(tmp_path / "none.jsonl")])
