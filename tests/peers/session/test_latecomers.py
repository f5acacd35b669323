"""How long a peer waits for those who have not come to an agreement, on a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest

from peers.session.latecomers import Latecomers


class Scene:
    """A clock, a table of the swarm, and what was said."""

    def __init__(self, timeout: float | None = None, seconds_per_step: float = 0.0) -> None:
        self.now = 1000.0
        self.rows: dict[int, dict[str, Any]] = {2: {"incarnation": 0, "step": 40, "state": "training"}}
        self.states = {1: "alive", 2: "slow"}
        self.said: list[str] = []
        self.late = Latecomers(
            timeout,
            lambda: self.rows,
            lambda: self.states,
            self.said.append,
            lambda step: seconds_per_step if step else 0.0,
            lambda: self.now,
        )

    def after(self, seconds: float, missing: set[int], gap: float = float("inf")) -> bool:
        """Look once a second for a number of seconds; return whether it is worth waiting then."""
        worth = True
        for _ in range(int(seconds)):
            self.now += 1.0
            worth = self.late.worth_waiting(missing, gap)
        return worth


def test_a_straggler_that_makes_steps_is_waited_for_and_named_now_and_then() -> None:
    scene = Scene()
    for _ in range(12):
        assert scene.after(50, {2}), "each of its steps takes most of a minute"
        scene.rows[2]["step"] += 1
    assert scene.said[0] == (
        "waits for rank 2 (slow, training, at step 40, no step in 30 s): all peers must come to the same call"
    )
    assert "last step" in scene.said[-1]
    assert len(scene.said) == 20
    assert scene.after(61, {2}), "the last step was just seen"
    assert not scene.after(1, {2})


def test_one_that_stands_still_is_given_up_unless_its_steps_take_longer() -> None:
    assert Scene().after(60, {2})
    assert not Scene().after(62, {2})
    assert Scene(seconds_per_step=100.0).after(400, {2})
    assert not Scene(seconds_per_step=100.0).after(402, {2})
    assert not Scene(seconds_per_step=100.0).after(62, {1}), "nothing is known of it"


def test_who_comes_dies_or_gets_nearer_is_a_change() -> None:
    scene = Scene()
    assert scene.after(50, {1, 2})
    assert scene.after(50, {2})
    assert scene.after(50, set(), gap=1.0)
    assert scene.after(50, set(), gap=0.5)
    assert scene.after(11, set(), gap=0.49), "that is hardly nearer"
    assert not scene.after(2, set(), gap=0.48)


@pytest.mark.parametrize("timeout", [5.0, 500.0])
def test_a_time_out_takes_the_place_of_the_rule(timeout: float) -> None:
    scene = Scene(timeout)
    assert scene.after(timeout, {2})
    scene.rows[2]["step"] += 1
    assert not scene.after(1, {2})


def test_many_are_not_all_named() -> None:
    scene = Scene()
    scene.after(1, set(range(2, 30)))
    described = scene.late.described()
    assert described.startswith("rank 2 (slow, training, at step 40, no step in 1 s), rank 3 (alive, no report yet, ")
    assert described.endswith(" and 20 more")
