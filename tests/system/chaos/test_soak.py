"""Peers are killed, stopped and started for two minutes: training goes on, nothing piles up, no mass is missing."""

from __future__ import annotations

import pytest

from benchmarks import soak


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_swarm_lives_through_two_minutes_of_deaths_and_joins(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(minutes=2.0, seed=0), capsys.readouterr().out
