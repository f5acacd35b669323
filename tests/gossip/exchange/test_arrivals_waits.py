"""Deadlines learned from arrivals: the estimator, who counts as slow, and what a step waits for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.arrivals import Estimate, Lateness
from gossip.exchange.patience import Waiting
from gossip.settings import Settings

seconds = st.floats(0, 100)


def patient(ceiling: float) -> Settings:
    """Two step times, below a ceiling."""
    return Settings(wait_ceiling=ceiling, patience=2.0, wait_floor=0.0)


def estimate(*observed: float) -> Estimate:
    one = Estimate()
    for value in observed:
        one.add(value)
    return one


def test_while_nothing_is_known_the_ceiling_holds() -> None:
    assert Estimate().deadline(7.0) == 7.0
    assert Estimate().mean is None


def test_the_first_observation_counts_whole() -> None:
    assert estimate(2.0).mean == 2.0
    assert estimate(2.0).deadline(100.0) == 2.0 + 4 * 1.0


def test_a_later_observation_counts_an_eighth() -> None:
    # Jacobson: the deviation is 1 + (|4 - 2| - 1) / 4 = 1.25, the mean 2 + (4 - 2) / 8 = 2.25.
    assert estimate(2.0, 4.0).mean == 2.25
    assert estimate(2.0, 4.0).deadline(100.0) == 2.25 + 4 * 1.25


def test_the_ceiling_is_never_exceeded() -> None:
    assert estimate(2.0).deadline(5.0) == 5.0


def test_a_steady_duration_is_learned() -> None:
    steady = estimate(9.0, *[1.0] * 100)
    assert steady.mean == pytest.approx(1.0, abs=1e-4)
    assert steady.deadline(100.0) == pytest.approx(1.0, abs=1e-3)


@given(st.lists(seconds, min_size=1, max_size=50), seconds)
def test_the_mean_stays_within_what_was_observed(observed: list[float], ceiling: float) -> None:
    one = estimate(*observed)
    assert one.mean is not None
    assert min(observed) - 1e-9 <= one.mean <= max(observed) + 1e-9
    assert 0 <= one.deadline(ceiling) <= ceiling


def test_an_unknown_neighbour_gets_all_the_patience() -> None:
    assert Lateness().wait(1, 3.0) == 3.0


@pytest.mark.parametrize(
    ("late", "wait"),
    [
        (0.0, 1.5),  # punctual: half of the patience nevertheless
        (0.25, 1.5),
        (0.75, 2.25),  # 0.75 + 4 * 0.375
        (2.0, 3.0),  # never more than the patience
        (3.0, 3.0),
        (3.1, 0.0),  # later than the patience: slow
    ],
)
def test_how_long_a_neighbour_is_waited_for(late: float, wait: float) -> None:
    lateness = Lateness()
    lateness.add(1, late)
    assert lateness.wait(1, 3.0) == wait
    assert lateness.wait(2, 3.0) == 3.0


def test_one_that_is_slow_is_not_waited_for_when_it_is_on_time_once() -> None:
    lateness = Lateness()
    for _ in range(20):
        lateness.add(3, 2.0)
    assert lateness.wait(3, 1.0) == 0
    for _ in range(7):  # the shards of one turn, to which it has skipped
        lateness.add(3, 0.0)
    assert lateness.wait(3, 1.0) == 0
    for _ in range(14):
        lateness.add(3, 0.0)
    assert lateness.wait(3, 1.0) > 0, "on time again and again"


def test_a_forgotten_neighbour_is_unknown_again() -> None:
    lateness = Lateness()
    lateness.add(1, 100.0)
    assert lateness.wait(1, 3.0) == 0.0
    lateness.forget(1)
    lateness.forget(2)
    assert lateness.wait(1, 3.0) == 3.0


def wanting(lag: int | None = 0) -> Waiting:
    """Return a waiting that wants turn 0 of rank 1 since time 0 with a ceiling of 8 s."""
    waiting = Waiting(2, lag)
    waiting.pushed(0, 0, 0.0)
    waiting.want(1, 0, 0, 0.0, patient(8.0))
    return waiting


def test_nothing_is_waited_for_at_first() -> None:
    waiting = Waiting(2, 0)
    assert not waiting
    assert (waiting.deadline, waiting.ranks) == (None, set())


def test_a_wait_ends_with_the_arrival_of_its_turn_or_a_later_one() -> None:
    for turn, ends in ((0, True), (1, True), (50, True)):
        waiting = wanting()
        assert waiting
        assert (waiting.deadline, waiting.ranks) == (8.0, {1})
        waiting.arrived(1, 0, turn, 1.0)
        assert bool(waiting) is not ends


@pytest.mark.parametrize(("rank", "shard"), [(2, 0), (1, 1)])
def test_a_wait_does_not_end_with_the_arrival_of_something_else(rank: int, shard: int) -> None:
    waiting = wanting()
    waiting.arrived(rank, shard, 0, 1.0)
    assert waiting.ranks == {1}


def test_an_earlier_turn_does_not_end_a_wait() -> None:
    waiting = Waiting(1, 0)
    waiting.want(1, 0, 5, 0.0, patient(8.0))
    waiting.arrived(1, 0, 4, 1.0)
    assert waiting


def test_what_is_there_is_not_waited_for() -> None:
    waiting = Waiting(1, 0)
    waiting.arrived(1, 0, 5, 0.0)
    waiting.arrived(1, 0, 2, 0.0)
    waiting.want(1, 0, 5, 1.0, patient(8.0))
    assert not waiting
    waiting.want(1, 0, 6, 1.0, patient(8.0))
    assert waiting


def test_a_wait_expires_at_its_time_and_not_before() -> None:
    waiting = wanting()
    waiting.expire(7.999)
    assert waiting
    waiting.expire(8.0)
    assert not waiting


def test_the_first_of_several_deadlines_counts() -> None:
    waiting = wanting()
    waiting.want(2, 0, 0, 0.0, patient(3.0))
    assert (waiting.deadline, waiting.ranks) == (3.0, {1, 2})
    waiting.expire(3.0)
    assert (waiting.deadline, waiting.ranks) == (8.0, {1})


def test_our_own_steps_are_the_measure_of_patience() -> None:
    waiting = Waiting(1, 0)
    waiting.step_ended(5.0)
    waiting.want(1, 0, 0, 5.0, patient(8.0))
    assert waiting.deadline == 13.0, "no step was seen from its beginning yet"
    waiting.step_began(6.0)
    waiting.step_ended(7.0)
    waiting.want(2, 0, 0, 7.0, patient(8.0))
    assert waiting.deadline == 9.0


def test_lateness_counts_from_when_the_turn_was_wanted() -> None:
    waiting = Waiting(1, 1)
    for turn, at in ((0, 0.0), (1, 10.0), (2, 20.0)):
        waiting.pushed(0, turn, at)
    # With a lag of 1 the parcel of turn 0 is wanted when turn 1 is pushed.
    assert waiting._wanted_since(0, 0 + 1, 25.0) == 10.0
    assert waiting._wanted_since(0, 5, 25.0) == 25.0, "not wanted yet"
    assert waiting._wanted_since(0, -3, 25.0) == 0.0


def test_a_parcel_within_the_lag_is_not_late() -> None:
    waiting = Waiting(1, 1)
    waiting.pushed(0, 0, 0.0)
    waiting.pushed(0, 1, 10.0)
    waiting.arrived(1, 0, 0, 10.5)  # half a second after it was wanted, and not ten and a half
    waiting.want(1, 0, 1, 20.0, patient(3.0))
    assert waiting.deadline == 21.5


def test_a_turn_that_was_skipped_is_wanted_since_the_next() -> None:
    waiting = Waiting(1, 0)
    waiting.pushed(0, 0, 0.0)
    waiting.pushed(0, 7, 10.0)
    assert waiting._wanted_since(0, 4, 25.0) == 10.0


@pytest.mark.parametrize(("every", "until"), [(1, 6.0), (4, 24.0), (100, 50.0)])
def test_patience_is_for_the_time_from_one_exchange_to_the_next(every: int, until: float) -> None:
    """Steps of 3 s, a turn with every few of them, twice that for patience, and a ceiling of 50 s."""
    waiting = Waiting(1, 0, every)
    waiting.step_began(-3.0)
    waiting.step_ended(0.0)
    waiting.pushed(0, 0, 0.0)
    waiting.want(1, 0, 0, 0.0, patient(50.0))
    assert waiting.deadline == until


def test_a_policy_that_never_waits_learns_nothing() -> None:
    waiting = wanting(lag=None)
    waiting.arrived(1, 0, 0, 100.0)
    assert not waiting._lateness._neighbours


def test_one_that_skips_turns_counts_as_slow() -> None:
    waiting = wanting()
    waiting.expire(8.0)
    waiting.want(1, 0, 1, 10.0, patient(8.0))
    assert not waiting, "turn 0 never came, neither in time nor late"


def test_one_that_came_late_is_not_taken_for_one_that_skips() -> None:
    waiting = wanting()
    waiting.expire(8.0)
    waiting.pushed(0, 1, 9.0)
    waiting.arrived(1, 0, 0, 9.5)
    waiting.want(1, 0, 1, 10.0, patient(100.0))
    assert waiting.ranks == {1}


def test_the_dead_are_neither_waited_for_nor_remembered() -> None:
    waiting = wanting()
    waiting.want(2, 0, 0, 0.0, patient(8.0))
    waiting.arrived(1, 1, 30, 9.0)
    waiting.forget(1)
    assert waiting.ranks == {2}
    waiting.want(1, 1, 0, 10.0, patient(8.0))
    assert waiting.ranks == {1, 2}, "a new life starts from turn 0 and is unknown"
    assert not any(key[0] == 1 for key in waiting._latest)


def test_with_steps_of_no_time_a_neighbour_is_still_worth_the_floor() -> None:
    waiting = Waiting(1, 0)
    waiting.step_began(0.0)
    waiting.step_ended(0.0)
    waiting.want(1, 0, 0, 5.0, Settings(wait_floor=0.25))
    assert waiting.deadline == 5.25
