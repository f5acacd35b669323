"""Shards and their mass: giving leaves z alone, merging is the weighted mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.books.mass import Mass
from gossip.errors import SettingsError
from gossip.values.layout import Layout

F4, F8 = np.dtype(np.float32), np.dtype(np.float64)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: Mass(Layout.uniform(3, 1, F8), np.zeros(4)),
            "the layout is for 3 values of float64, not (4,) of float64",
        ),
        (lambda: Mass(Layout.uniform(3, 1, F8), np.zeros(3, F4)), "not (3,) of float32"),
        (lambda: Mass(Layout.uniform(4, 1, F8), np.zeros((2, 2))), "not (2, 2) of float64"),
    ],
)
def test_values_of_another_size_or_type_than_the_layout_are_refused(make: object, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make()  # type: ignore[operator]
    assert said in str(caught.value)


def test_every_shard_starts_with_a_weight_of_1() -> None:
    assert Mass(Layout.uniform(6, 3, F8), np.zeros(6)).weights == [1.0, 1.0, 1.0]


def test_the_weights_given_are_copied() -> None:
    weights = [0.5, 2.0]
    mass = Mass(Layout.uniform(6, 2, F8), np.zeros(6), weights)
    mass.give(0, 0.25)
    assert weights == [0.5, 2.0]
    assert mass.weights == [0.25, 2.0]


def test_giving_touches_no_value() -> None:
    values = np.arange(6.0)
    mass = Mass(Layout.uniform(6, 2, F8), values)
    mass.give(1, 0.75)
    assert mass.weights == [1.0, 0.25]
    assert values.tolist() == [0, 1, 2, 3, 4, 5]


def test_the_values_are_the_users_own_vector() -> None:
    values = np.zeros(6)
    mass = Mass(Layout.uniform(6, 2, F8), values)
    mass.merge(1, np.full(3, 2.0), 1.0)
    assert values.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.shares_memory(mass.view(1), values)


def test_a_snapshot_is_a_copy() -> None:
    mass = Mass(Layout.uniform(4, 2, F8), np.arange(4.0))
    copy = mass.snapshot(1)
    mass.values[:] += 10
    assert copy is not None
    assert copy.values.tolist() == [2, 3]
    assert mass.view(1).tolist() == [12, 13]


def test_merging_leaves_the_other_shards_and_the_parcel_alone() -> None:
    mass = Mass(Layout.uniform(4, 2, F8), np.arange(4.0), [1.0, 3.0])
    arrived = np.array([10.0, 20.0])
    arrived.flags.writeable = False
    mass.merge(0, arrived, 1.0)
    assert mass.values.tolist() == [5.0, 10.5, 2.0, 3.0]
    assert mass.weights == [2.0, 3.0]


def test_who_has_no_weight_takes_the_values_as_they_come() -> None:
    mass = Mass(Layout.uniform(2, 1, F8), np.array([1e300, np.nan]), [0.0])
    mass.merge(0, np.array([1.0, 2.0]), 0.5)
    assert mass.values.tolist() == [1.0, 2.0]
    assert mass.weights == [0.5]


def test_merging_what_is_equal_changes_nothing_at_all() -> None:
    values = np.array([0.1, 1 / 3, -7e-300])
    mass = Mass(Layout.uniform(3, 1, F8), values.copy(), [0.7])
    mass.merge(0, values, 0.3)
    assert mass.values.tobytes() == values.tobytes()


numbers = st.floats(-1e6, 1e6)
weights = st.floats(1e-3, 10)


@given(st.lists(st.tuples(numbers, weights), min_size=1, max_size=8), numbers, weights)
def test_merging_conserves_mass(parcels: list[tuple[float, float]], value: float, weight: float) -> None:
    mass = Mass(Layout.uniform(1, 1, F8), np.array([value]), [weight])
    x = value * weight
    for z, w in parcels:
        mass.merge(0, np.array([z]), w)
        x += z * w
        weight += w
    assert mass.weights[0] == pytest.approx(weight, rel=1e-12)
    assert mass.values[0] * mass.weights[0] == pytest.approx(x, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_the_type_of_the_values_stays(dtype: str) -> None:
    mass = Mass(Layout.uniform(2, 1, np.dtype(dtype)), np.ones(2, dtype))
    mass.merge(0, np.full(2, 3, dtype), 1.0)
    assert mass.values.dtype == dtype
    assert mass.values.tolist() == [2.0, 2.0]
