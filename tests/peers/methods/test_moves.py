"""The update rule against a dense reference in double precision, with weights and mass in flight made by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hand_swarm import ONE_WAY, Hand

from gossip import events
from gossip.wire.messages import Ack, Parcel
from peers.methods.moves import LONGEST, Moves
from peers.steps.gossip_steps import stretch


class Watched(torch.Tensor):
    """Counts how often it is copied."""

    clones = 0

    def clone(self, *args: object, **named: object) -> torch.Tensor:
        Watched.clones += 1
        return super().clone(*args, **named)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_clones() -> None:
    Watched.clones = 0


@pytest.mark.parametrize(
    ("weight", "on_way", "factor"),
    [(1.0, 0.125, 1.125), (0.5, 0.1, 1.2), (0.5, 0.5, 1.25), (0.2, 0.8, 1.25), (1 / 3, 5.0, 1.25), (2.0, 0.25, 1.125)],
)
def test_x_moves_by_the_mass_held_and_the_mass_on_its_way(weight: float, on_way: float, factor: float) -> None:
    generator = np.random.default_rng(4)
    z, gradient, rate = generator.normal(size=7), generator.normal(size=7), 0.1
    values = torch.tensor(z)
    moves = Moves(1, lambda _: values, lambda _: (weight + on_way) / weight)
    moves.begin()
    values -= rate * torch.tensor(gradient)
    moves.end()
    # x <- x + min(w + o, 1.25 w) u, with x = w z and u = -rate g
    x = weight * z - min(weight + on_way, LONGEST * weight) * rate * gradient
    assert factor == pytest.approx(min(LONGEST, (weight + on_way) / weight))
    np.testing.assert_allclose(values.numpy(), x / weight, rtol=1e-14, atol=1e-15)


def test_each_shard_has_its_own_factor_and_untouched_values_stay() -> None:
    values = torch.arange(6.0, dtype=torch.float64)
    shards = [values[:2], values[2:4], values[4:]]
    stretch = [1.0, 1.125, float("inf")]
    moves = Moves(3, shards.__getitem__, stretch.__getitem__)
    moves.begin()
    values[0] += 1.0
    values[2] += 1.0
    values[4] += 1.0
    moves.end()
    assert values.tolist() == [1.0, 1.0, 3.125, 3.0, 5.25, 5.0]


def test_when_nothing_is_on_its_way_nothing_is_copied() -> None:
    values = torch.ones(4, dtype=torch.float64).as_subclass(Watched)
    stretch = [1.0]
    moves = Moves(1, lambda _: values, lambda _: stretch[0])
    for factor, clones in ((1.0, 0), (1.009, 0), (1.5, 1)):
        stretch[0] = factor
        moves.begin()
        moves.end()
        assert Watched.clones == clones


def test_a_move_is_stretched_once() -> None:
    values = torch.zeros(1)
    moves = Moves(1, lambda _: values, lambda _: 2.0)
    moves.begin()
    values += 1.0
    moves.end()
    moves.end()
    assert values.tolist() == [1.25]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_all_kinds_of_number_can_be_stretched(dtype: torch.dtype) -> None:
    values = torch.full((3,), 2.0, dtype=dtype)
    moves = Moves(1, lambda _: values, lambda _: 1.25)
    moves.begin()
    values -= 1.0
    moves.end()
    assert values.dtype == dtype
    assert values.tolist() == [0.75, 0.75, 0.75]


def test_through_the_core_mass_on_its_way_is_trained_and_an_answer_ends_that() -> None:
    """A core of osgp: rule B and D, merge before move, against x and w kept by hand in double precision."""
    hand = Hand([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], turns=[ONE_WAY], algorithm="osgp")
    core = hand.cores[0]
    values = torch.from_numpy(core.mass.values)
    moves = Moves(1, lambda _: values, lambda shard: stretch(core.status(), shard))
    x, w, o = np.array([1.0, 2.0, 3.0, 4.0]), 1.0, 0.0
    gradient = np.array([1.0, -1.0, 0.5, 0.25])

    def move() -> None:
        nonlocal x
        moves.begin()
        values.sub_(torch.from_numpy(0.1 * gradient))
        moves.end()
        x = x - min(w + o, LONGEST * w) * 0.1 * gradient
        np.testing.assert_allclose(core.mass.values, x / w, rtol=1e-13)
        assert core.mass.weights == [pytest.approx(w)]

    move()
    hand.step(0)  # half of it is on its way
    x, w, o = x / 2, 0.5, 0.5
    assert core.outbox.weight(0) == 0.5
    move()
    (sent,) = hand.parcels()
    # Mass arrives while the trainer computes, and is merged before the move.
    back = Parcel(sent.destination, sent.origin, 0, 0, 0, 0.25, np.array([9.0, 8.0, 7.0, 6.0]))
    hand.tell(0, back)
    assert core.mass.weights == [0.5], "not while the values are the trainer's"
    hand.feed(0, events.Merge())
    x, w = x + 0.25 * back.values, 0.75
    move()
    hand.tell(0, Ack(sent.destination, sent.origin, sent.sequence))
    o = 0.0
    move()


def test_a_synchronous_peer_counts_only_mass_that_is_late() -> None:
    """Its receiver waits for the parcel of the turn and trains it; that the answer is not here yet means nothing."""
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="sgp")
    core = hand.cores[0]
    hand.step(0)
    assert core.outbox.weight(0) == 0.5
    assert stretch(core.status(), 0) == 1.0
    hand.step(0)  # nothing more is pushed while that is on its way
    assert core.mass.weights == [0.5]
    assert stretch(core.status(), 0) == 2.0
    hand.settle()
    assert stretch(core.status(), 0) == 1.0


def test_a_peer_without_mass_makes_its_longest_move() -> None:
    status = SimpleNamespace(weights=(0.0,), untrained=(0.5,))
    assert stretch(status, 0) == float("inf")  # type: ignore[arg-type]


def test_a_buffer_that_changes_during_the_step_is_left_as_it_is() -> None:
    """As the variance of batch norm does under a closure: made longer, it could become negative."""
    values = torch.ones(4)
    moves = Moves(1, lambda _: values, lambda _: 1.25, [values[2:]])
    moves.begin()
    values.mul_(0.1)
    moves.end()
    torch.testing.assert_close(values, torch.tensor([-0.125, -0.125, 0.1, 0.1]))
