"""The series: few rows for any number of lines, and nothing lost from the sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from launch.report.series import Series


def lines(count: int, first: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [
        {"time": 100.0 + step, "step": step, "seconds": 0.5, "bytes_sent": step, "loss": float(step % 7), **more}
        for step in range(first, first + count)
    ]


def test_few_lines_stay_as_they_are() -> None:
    series = Series(10)
    assert series.add(lines(5))
    assert series.step.tolist() == [1, 2, 3, 4, 5]
    assert series.time.tolist() == [101, 102, 103, 104, 105]
    assert series.column("loss").tolist() == [1, 2, 3, 4, 5]
    assert series.begin == 100.5


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_many_lines_become_few_rows_of_the_same_sums(chunk: int) -> None:
    told = lines(5000)
    series = Series(64)
    for first in range(0, len(told), chunk):
        assert series.add(told[first : first + chunk])
        assert len(series) <= 64
    assert len(series) >= 16
    assert series.total("lines") == 5000
    assert series.total("sent") == sum(range(5001))
    assert series.total("loss") == sum(step % 7 for step in range(1, 5001))
    assert len(set(series.column("lines")[:-1])) == 1, "evenly, however they came"
    # Each row is what its lines add up to.
    last = np.concatenate([[0], series.step]).astype(int)
    for row in range(len(series)):
        steps = range(last[row] + 1, last[row + 1] + 1)
        assert series.column("lines")[row] == len(steps)
        assert series.column("sent")[row] == sum(steps)
        assert series.loss_range[row].tolist() == [min(s % 7 for s in steps), max(s % 7 for s in steps)]


def test_a_row_does_not_span_two_lives() -> None:
    series = Series(64)
    assert series.add(lines(1001))
    assert series.add(lines(501))
    lives = series.life
    assert set(lives) == {0, 1}
    assert series.column("lines")[lives == 0].sum() == 1001
    assert series.total("lines", last_life=True) == 501


def test_a_start_begins_a_life_though_steps_go_on() -> None:
    series = Series(64, starts=[100.0, 105.5])
    assert series.add(lines(10))
    assert series.life.tolist() == [0] * 5 + [1] * 5


def test_as_many_lives_as_lines_are_bounded_too() -> None:
    series = Series(32)
    for _ in range(500):
        assert series.add(lines(1))
    assert len(series) <= 32
    assert series.total("lines") == 500


def test_losses_that_are_no_numbers_are_counted_and_not_added() -> None:
    series = Series(64)
    told = lines(6)
    for line, loss in zip(told, [1.0, float("nan"), float("inf"), 1e308, "text", None], strict=True):
        line["loss"] = loss
    assert series.add(told)
    assert series.column("odd").tolist() == [0, 1, 1, 1, 0, 0]
    assert series.total("losses") == 1
    assert series.total("loss") == 1.0
    assert series.first_odd == 2


@pytest.mark.parametrize("broken", [{"step": None}, {"step": "x"}, {"seconds": float("nan")}, {"seconds": [1]}])
def test_a_line_without_step_or_seconds_is_refused(broken: dict[str, Any]) -> None:
    series = Series(64)
    assert not series.add([*lines(3), {**lines(1, 4)[0], **broken}])
    assert len(series) == 0


def test_without_times_steps_follow_each_other() -> None:
    series = Series(64)
    told = [{"step": step, "seconds": 0.5} for step in (1, 2, 3)]
    assert series.add(told[:2])
    assert series.add(told[2:])
    assert series.time.tolist() == [0.5, 1.0, 1.5]


def test_what_was_done_again_after_a_resume_counts_once() -> None:
    """Killed at 107 and resumed from 100, killed at 112 and resumed from 100 again."""
    resumes = [(10_000.0, 100.0), (20_000.0, 100.0)]
    told = [*lines(107), *_later(lines(12, 101), 10_000), *_later(lines(50, 101), 20_000)]
    for chunk in (1, 1000):
        series = Series(1000, starts=[0.0, 9_999.0, 19_999.0], resumes=resumes)
        for first in range(0, len(told), chunk):
            assert series.add(told[first : first + chunk])
        assert series.step.tolist() == list(range(1, 151)), "in order, none twice"
        assert series.total("sent") == sum(range(1, 151))
        assert series.superseded == 7 + 12
        assert len(set(series.life)) == 2, "nothing is left of the one between"
    few = Series(16, resumes=resumes)
    assert few.add(told)
    assert few.total("lines") == 150, "also where many lines are one row"


def test_a_life_that_was_started_anew_counts_on() -> None:
    series = Series(64)
    for told in (lines(10), _later(lines(3), 1000), _later(lines(2), 2000)):
        for one in told:
            assert series.add([one])
    assert series.step.tolist() == list(range(1, 16)), "what the former lives did is not lost"
    assert series.add(_later(lines(4), 3000) + _later(lines(2), 4000))
    assert series.step.tolist() == list(range(1, 22))
    assert series.life[-1] == 4


def _later(told: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    return [{**line, "time": line["time"] + seconds} for line in told]
