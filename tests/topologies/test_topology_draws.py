"""The random numbers: uniform, the same by one and by the array, and permutations that can be inverted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topologies
from topologies.draws import Shuffle, below, below_array, chance, draw, draw_array

INTEGERS = st.integers(min_value=0, max_value=2**64 - 1)


def far_from_uniform(values: Iterable[Hashable], cells: int) -> float:
    """Return chi-square in standard deviations above its mean: about 0 for uniform values, seldom above 3.

    The keys are fixed, so a test with this passes always or never; 4.5 is a limit that a good generator
    stays below for nearly any keys, and a bias of a few per cent in thousands of draws does not.
    """
    counts = Counter(values)
    expected = counts.total() / cells
    assert len(counts) <= cells
    missed = (cells - len(counts)) * expected
    chi_square = sum((seen - expected) ** 2 / expected for seen in counts.values()) + missed
    return (chi_square - (cells - 1)) / math.sqrt(2 * (cells - 1))


LIMIT = 4.5


def test_the_measure_sees_a_bias_of_a_few_per_cent() -> None:
    biased = [k % 10 if k % 20 else 3 for k in range(6000)]
    assert far_from_uniform(biased, 10) > LIMIT
    assert far_from_uniform([k % 9 for k in range(900)], 10) > LIMIT
    assert abs(far_from_uniform([k % 10 for k in range(6000)], 10)) < LIMIT


@pytest.mark.parametrize("bound", [2, 3, 5, 7, 16, 33, 100])
@pytest.mark.parametrize("varied", ["seed", "step", "rank"])
def test_draws_below_a_bound_are_uniform_in_every_key(bound: int, varied: str) -> None:
    keys = {
        "seed": [(k, 3, 5) for k in range(6000)],
        "step": [(3, k, 5) for k in range(6000)],
        "rank": [(3, 5, k) for k in range(6000)],
    }[varied]
    assert abs(far_from_uniform((below(bound, *key) for key in keys), bound)) < LIMIT


@pytest.mark.parametrize("gap", [1, 2, 8])
def test_draws_of_neighbouring_keys_are_independent(gap: int) -> None:
    pairs = [(below(6, 1, k), below(6, 1, k + gap)) for k in range(8000)]
    assert abs(far_from_uniform(pairs, 36)) < LIMIT


def test_the_order_and_the_number_of_keys_count() -> None:
    assert len({draw(1, 2), draw(2, 1), draw(1), draw(2), draw(1, 2, 0), draw(0, 1, 2), draw(12)}) == 7


def test_a_draw_is_a_fixed_number() -> None:
    """The finalizer of splitmix64, whose first value for the seed 0 is published."""
    assert draw(0) == 0xE220A8397B1DCDAF
    assert draw(0x9E3779B97F4A7C15) == draw(0x9E3779B97F4A7C15 + 2**64)


@given(st.integers(1, 2**31), st.lists(INTEGERS, max_size=4), st.lists(st.integers(0, 2**63 - 1), min_size=1))
def test_the_array_form_is_the_single_form_bit_for_bit(bound: int, keys: list[int], last: list[int]) -> None:
    array = np.array(last, dtype=np.int64)
    assert draw_array(tuple(keys), array).tolist() == [draw(*keys, k) for k in last]
    assert below_array(bound, tuple(keys), array).tolist() == [below(bound, *keys, k) for k in last]


@given(st.integers(1, 10**6), st.lists(INTEGERS, min_size=1, max_size=4))
def test_a_draw_is_below_its_bound(bound: int, keys: list[int]) -> None:
    assert 0 <= below(bound, *keys) < bound


@pytest.mark.parametrize("probability", [0.0, 0.05, 0.5, 0.93, 1.0])
def test_a_coin_has_its_probability(probability: float) -> None:
    heads = sum(chance(probability, 9, k) for k in range(10_000))
    allowed = LIMIT * math.sqrt(10_000 * probability * (1 - probability))
    assert abs(heads - 10_000 * probability) <= allowed


@pytest.mark.parametrize("block", range(4))
def test_a_shuffle_is_a_permutation_and_index_its_inverse(block: int) -> None:
    for n in range(1 + block, 201, 4):
        for key in range(4):
            shuffle = Shuffle(n, key, n)
            elements = [shuffle(position) for position in range(n)]
            assert sorted(elements) == list(range(n))
            assert [shuffle.index(element) for element in elements] == list(range(n))


@pytest.mark.parametrize("n", [10_000, 99_991, 100_000])
def test_a_large_shuffle_is_inverted_too(n: int) -> None:
    shuffle = Shuffle(n, 5)
    for position in range(0, n, n // 97):
        assert 0 <= shuffle(position) < n
        assert shuffle.index(shuffle(position)) == position


@pytest.mark.parametrize("n", [7, 16, 23, 50])
def test_a_shuffle_puts_every_element_everywhere(n: int) -> None:
    firsts = [Shuffle(n, 1, key)(0) for key in range(4000)]
    lasts = [Shuffle(n, 2, key)(n - 1) for key in range(4000)]
    assert abs(far_from_uniform(firsts, n)) < LIMIT
    assert abs(far_from_uniform(lasts, n)) < LIMIT


def matching(n: int, seed: int, step: int) -> frozenset[tuple[int, int]]:
    schedule = topologies.get("random-matching", n, seed=seed)
    met = ((rank, other) for rank in range(n) for other, _ in schedule.out_edges(rank, step))
    return frozenset((min(pair), max(pair)) for pair in met)


@pytest.mark.parametrize(("n", "matchings"), [(4, 3), (5, 15), (8, 105)])
def test_every_matching_is_as_likely(n: int, matchings: int) -> None:
    over_steps = (matching(n, seed, step) for seed in range(3) for step in range(1000))
    assert abs(far_from_uniform(over_steps, matchings)) < LIMIT
    over_seeds = (matching(n, seed, 0) for seed in range(3000))
    assert abs(far_from_uniform(over_seeds, matchings)) < LIMIT


@pytest.mark.parametrize("n", [9, 12, 20])
def test_a_random_matching_pairs_everybody_with_everybody_alike(n: int) -> None:
    schedule = topologies.get("random-matching", n)
    met = [edges[0][0] for step in range(4000) if (edges := schedule.out_edges(1, step))]
    assert abs(far_from_uniform(met, n - 1)) < LIMIT


@pytest.mark.parametrize(("s", "n"), [(1, 9), (3, 9), (2, 40)])
def test_epidemic_sends_to_everybody_alike(s: int, n: int) -> None:
    schedule = topologies.get("epidemic", n, s=s, seed=1)
    for rank in (0, n // 2, n - 1):
        targets = [other for step in range(2000) for other, _ in schedule.out_edges(rank, step)]
        assert rank not in targets
        # Those of one step differ from each other, so the counts scatter less than independent ones would.
        assert far_from_uniform(targets, n - 1) < LIMIT


def test_the_targets_of_epidemic_are_every_set_alike() -> None:
    schedule = topologies.get("epidemic", 6, s=2)
    chosen = (tuple(other for other, _ in schedule.out_edges(2, step)) for step in range(4000))
    assert abs(far_from_uniform(chosen, 10)) < LIMIT  # two of the five others


def test_the_peers_of_epidemic_choose_independently() -> None:
    schedule = topologies.get("epidemic", 5)
    chosen = (tuple(schedule.out_edges(rank, step)[0][0] for rank in (0, 3)) for step in range(4000))
    assert abs(far_from_uniform(chosen, 16)) < LIMIT


@pytest.mark.parametrize("n", [8, 9, 20])
def test_the_regular_epidemic_sends_to_everybody_alike(n: int) -> None:
    schedule = topologies.get("epidemic-regular", n, seed=1)
    targets = [schedule.out_edges(3, step)[0][0] for step in range(4000)]
    assert abs(far_from_uniform(targets, n - 1)) < LIMIT
