"""Every plan, for every n, sums exactly; in as many rounds and bytes as its formula says."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from gossip.collective import PLANS, choose, plan
from gossip.collective.attempt import Attempt, cut
from gossip.collective.reduction_plans import LATENCY, OVERHEAD, PER_BYTE, ReductionPlan, cost
from gossip.values.pool import Pool

EVERY_N = range(1, 18)


def simulated(made: ReductionPlan, vectors: np.ndarray) -> np.ndarray:
    """Carry a plan out with dense arrays: all of a round at once."""
    held = vectors.copy()
    for transfers in made.rounds:
        before = held.copy()
        for sender, receiver, start, stop, add in transfers:
            if add:
                held[receiver, start:stop] += before[sender, start:stop]
            else:
                held[receiver, start:stop] = before[sender, start:stop]
    return held


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("size", [1, 3, 64, 101])
def test_every_plan_sums_exactly(name: str, size: int) -> None:
    for n in EVERY_N:
        vectors = np.random.default_rng(n).integers(-1000, 1000, (n, size))
        found = simulated(plan(name, n, size), vectors)
        assert (found == vectors.sum(axis=0)).all(), f"{name} of {n}"


def most_bytes(made: ReductionPlan) -> int:
    """Return what the busiest place of each round sends or receives, summed over rounds."""
    total = 0
    for transfers in made.rounds:
        traffic: Counter[tuple[str, int]] = Counter()
        for sender, receiver, start, stop, _ in transfers:
            traffic["out", sender] += stop - start
            traffic["in", receiver] += stop - start
        total += max(traffic.values(), default=0)
    return total


def most_messages(made: ReductionPlan) -> int:
    """Return what the busiest place of each round handles, summed over rounds."""
    handled = (Counter(place for one in transfers for place in one[:2]) for transfers in made.rounds)
    return sum(max(one.values()) for one in handled)


@pytest.mark.parametrize("n", [n for n in EVERY_N if n > 1])
def test_rounds_and_bytes_are_those_of_the_formulas(n: int) -> None:
    size = 720_720 * 16  # whatever n is, blocks are whole
    power = 1 << (n.bit_length() - 1)
    depth = math.ceil(math.log2(n))
    ring, halving, tree = (plan(name, n, size) for name in ("ring", "halving", "tree"))
    assert len(ring.rounds) == 2 * (n - 1)
    assert most_bytes(ring) == pytest.approx(2 * (n - 1) / n * size, rel=1e-5)
    folds = 2 * (n != power)
    assert len(halving.rounds) == 2 * math.log2(power) + folds
    assert most_bytes(halving) == pytest.approx((2 * (power - 1) / power + folds) * size, rel=1e-5)
    assert len(tree.rounds) == 2 * depth
    assert most_bytes(tree) == 2 * depth * size
    for made in (ring, halving, tree):
        expected = len(made.rounds) * LATENCY + most_messages(made) * OVERHEAD + most_bytes(made) * PER_BYTE
        assert cost(made.name, n, size) == pytest.approx(expected, rel=1e-4), "and the model says the same"


def test_each_place_of_a_ring_sends_the_same() -> None:
    made = plan("ring", 7, 7 * 12)
    sent = [sum(one.stop - one.start for each in made.rounds for one in each if one.sender == p) for p in range(7)]
    assert sent == [2 * 6 * 12] * 7


def test_the_cheapest_plan_is_chosen_by_size_and_n() -> None:
    assert choose(1, 1 << 20) in PLANS
    assert choose(2, 100 << 20) != "tree", "twice the bytes"
    assert choose(8, 1 << 10) != "ring", "14 messages one after the other"
    assert choose(8, 1 << 10) == choose(5, 1 << 10) == "tree", "the fewest messages"
    assert choose(8, 1 << 20) == choose(8, 100 << 20) == "halving"
    assert choose(5, 100 << 20) == "ring", "nobody is folded in for many bytes"
    for n in EVERY_N:
        for nbytes in (1, 1 << 16, 1 << 30):
            assert cost(choose(n, nbytes), n, nbytes) == min(cost(name, n, nbytes) for name in PLANS)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("order", ["first in, first out", "last in, first out", "random"])
def test_attempts_come_to_the_sum_in_whatever_order_chunks_arrive(name: str, order: str) -> None:
    for n in EVERY_N:
        generator = np.random.default_rng(n)
        vectors = [generator.integers(-1000, 1000, 40_000).astype(np.float32) for _ in range(n)]
        attempts = [Attempt(name, n, place, vector.copy(), Pool(0)) for place, vector in enumerate(vectors)]
        letters = [(place, out) for place, one in enumerate(attempts) for out in one.start()]
        while letters:
            where = {"f": 0, "l": -1}.get(order[0])
            sender, out = letters.pop(int(generator.integers(len(letters))) if where is None else where)
            for _ in range(2):  # twice is once
                new = attempts[out.place].arrived(sender, out.step, out.cell, out.values)
                letters += [(out.place, more) for more in new]
        for attempt in attempts:
            assert attempt.finished
            assert not list(attempt.lacking())
            mean = np.empty(40_000, np.float32)
            assert attempt.finish(mean)
            np.testing.assert_array_equal(mean, np.sum(vectors, axis=0) * np.float32(1 / n))


@pytest.mark.parametrize("name", PLANS)
def test_whatever_is_lost_can_be_asked_for(name: str) -> None:
    """Nothing that is sent arrives; all is asked for, and given only as what it was."""
    for n in range(2, 10):
        vectors = [np.full(50, 10.0**place) for place in range(n)]
        attempts = [Attempt(name, n, place, vector, Pool(0)) for place, vector in enumerate(vectors)]
        for attempt in attempts:
            list(attempt.start())
        for _ in range(100 * n):
            for place, attempt in enumerate(attempts):
                for other, step, cell in list(attempt.lacking()):
                    found = attempts[other].again(place, step, cell)
                    if found is not None:
                        list(attempt.arrived(other, step, cell, found.values))
        for attempt in attempts:
            assert attempt.finished
            mean = np.empty(50)
            attempt.finish(mean)
            np.testing.assert_allclose(mean, np.mean(vectors, axis=0))


def test_a_cell_that_has_changed_since_is_not_sent_again_as_what_it_was() -> None:
    first, second = (Attempt("ring", 2, place, np.full(2, 1.0 + place), Pool(0)) for place in range(2))
    (gone,) = first.start()
    (came,) = second.start()
    (back,) = second.arrived(0, gone.step, gone.cell, gone.values)
    (also,) = first.arrived(1, came.step, came.cell, came.values)
    assert first.again(1, gone.step, gone.cell) is not None
    list(first.arrived(1, back.step, back.cell, back.values))
    assert first.again(1, gone.step, gone.cell) is None, "it holds the sum by now"
    assert first.again(1, also.step, also.cell) is not None
    assert first.again(1, 99, 0) is None
    assert first.again(1, 0, 99) is None


def test_what_no_plan_asks_for_is_not_taken_in() -> None:
    attempt = Attempt("ring", 3, 0, np.zeros(9), Pool(0))
    list(attempt.start())
    before = list(attempt.lacking())
    for sender, step, cell, size in [(1, 0, 2, 3), (2, 9, 2, 3), (2, 0, 77, 3), (2, 0, 2, 4), (2, 0, 0, 3)]:
        assert not list(attempt.arrived(sender, step, cell, np.ones(size)))
    assert list(attempt.lacking()) == before


def test_cells_are_no_longer_than_they_may_be() -> None:
    assert cut([0, 10, 11, 31], 7) == [0, 5, 10, 11, 17, 24, 31]
    assert cut([0, 5], 5) == [0, 5]
