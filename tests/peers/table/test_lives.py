"""Lives as people read them."""

from __future__ import annotations

import time

import pytest

from peers.table.lives import LIVES_APART, life_text


@pytest.mark.parametrize(
    ("incarnation", "text"),
    [(0, "0"), (1, "0+1"), (LIVES_APART, "1"), (LIVES_APART + 2, "1+2"), (12 * LIVES_APART, "12")],
)
def test_counted_lives_are_restarts_and_false_deaths(incarnation: int, text: str) -> None:
    assert life_text(incarnation) == text


def test_a_drawn_life_is_the_time_of_its_start() -> None:
    noon = time.mktime((2026, 11, 18, 12, 34, 56, 0, 0, -1))
    assert life_text(int(noon * 1000)) == "12:34:56"
