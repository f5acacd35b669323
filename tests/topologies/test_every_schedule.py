"""What every schedule promises, for every topology and every n from 1 to 130, some of them with the slow tests."""

from __future__ import annotations

from itertools import count

import networkx as nx
import numpy as np
import pytest
from topology_cases import NAMES, VARIANTS, exists, matrix

import topologies
from topologies import Schedule, TopologyError, UnsupportedSize

SEEDS = (0, 1, 7)
FAR = 10**6 + 3
#: Blocks of about equal work, for the workers that run them side by side.
BLOCKS = [
    (1, 50),
    (51, 66),
    (127, 130),
    *(pytest.param(slow, marks=pytest.mark.slow) for slow in ((67, 98), (99, 126))),
]
#: Those that a seed changes. The lanes of `hierarchical` run `base` unless told otherwise, which has no seed.
SEEDED = [name for name in NAMES if topologies.describe(name).random and name != "hierarchical"]
#: Those with new edges in every step.
NEW_EVERY_STEP = ["epidemic", "epidemic-regular", "equidyn", "equidyn-undirected", "matcha", "random-matching"]


def test_the_built_in_names_are_these() -> None:
    assert topologies.names() == NAMES


def steps_of(schedule: Schedule) -> list[int]:
    if schedule.period is None:
        return [0, 1, 5, FAR]
    return [*sorted({0, schedule.period // 2, schedule.period - 1}), FAR]


def check_step(schedule: Schedule, step: int) -> None:
    n = schedule.n
    expected = np.zeros((n, n))
    for rank in range(n):
        edges = schedule.out_edges(rank, step)
        kept = schedule.kept(rank, step)
        destinations = [destination for destination, _ in edges]
        assert destinations == sorted(set(destinations)), "a destination twice, or out of order"
        assert rank not in destinations
        assert all(0 <= destination < n for destination in destinations)
        assert all(0 < fraction <= 1 for _, fraction in edges)
        assert 0 <= kept <= 1
        assert abs(sum(fraction for _, fraction in edges) + kept - 1) < 1e-12
        for destination, fraction in edges:
            expected[destination, rank] = fraction
        expected[rank, rank] = kept
    assert np.array_equal(matrix(schedule, step), expected), "graph_at disagrees with out_edges and kept"
    off_diagonal = expected * (1 - np.eye(n))
    for rank in range(n):
        senders = np.flatnonzero(off_diagonal[rank]).tolist()
        assert list(schedule.in_neighbours(rank, step)) == senders
    if schedule.name != "epidemic":
        assert np.abs(expected.sum(axis=1) - 1).max() < 1e-12, "not doubly stochastic"
    assert np.abs(expected.sum(axis=0) - 1).max() < 1e-12


def edges_at(schedule: Schedule, step: int) -> list[object]:
    return [schedule.out_edges(rank, step) for rank in range(schedule.n)]


def check_period(schedule: Schedule) -> None:
    """A period is true: the schedule repeats after it, every step of it, and later too."""
    if schedule.period is None:
        return
    for step in range(schedule.period):
        now = edges_at(schedule, step)
        assert now == edges_at(schedule, step + schedule.period)
    assert edges_at(schedule, FAR) == edges_at(schedule, FAR % schedule.period)


def check_connected(schedule: Schedule) -> None:
    """Mass from everybody reaches everybody within a period, or within many steps if there is none."""
    union = nx.DiGraph()
    union.add_nodes_from(range(schedule.n))
    for step in range(schedule.period or 200):
        union.add_edges_from((u, v) for u in range(schedule.n) for v, _ in schedule.out_edges(u, step))
        if schedule.period is None and step % 10 == 9 and nx.is_strongly_connected(union):
            return
    assert nx.is_strongly_connected(union)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block[0]}-{block[1]}")
@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_is_valid_at_every_size(name: str, block: tuple[int, int]) -> None:
    for n in range(block[0], block[1] + 1):
        if not exists(name, n):
            with pytest.raises(UnsupportedSize):
                topologies.get(name, n)
            continue
        for seed in SEEDS if name in SEEDED else SEEDS[:1]:
            if name == "matcha" and seed and n % 7:
                continue  # it optimises when it is built, and there are thousands to build
            schedule = topologies.get(name, n, seed=seed)
            assert schedule.n == n
            if seed == 0:
                for step in steps_of(schedule):
                    check_step(schedule, step)
                check_period(schedule)
                check_connected(schedule)
            else:
                check_step(schedule, FAR + n)


@pytest.mark.parametrize("text", VARIANTS)
def test_a_schedule_is_valid_with_other_parameters(text: str) -> None:
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 27, 30, 33):
        schedule = topologies.parse(text, n, seed=3)
        for step in steps_of(schedule):
            check_step(schedule, step)
        check_period(schedule)
        check_connected(schedule)


@pytest.mark.parametrize("name", [name for name in NAMES if not all(exists(name, n) for n in range(1, 131))])
def test_a_size_that_does_not_exist_names_the_nearest_that_do(name: str) -> None:
    for n in (n for n in range(1, 131) if not exists(name, n)):
        with pytest.raises(UnsupportedSize) as caught:
            topologies.get(name, n)
        below = next(m for m in range(n - 1, 0, -1) if exists(name, m))
        above = next(m for m in count(n + 1) if exists(name, m))
        assert topologies.get(name, below).n == below
        assert topologies.get(name, above).n == above
        assert f"n = {below} and {above}." in str(caught.value)
        assert f"not n = {n}" in str(caught.value)
        assert "'base'" in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_equal_arguments_give_equal_graphs(name: str) -> None:
    for n in (n for n in (1, 2, 5, 16, 36, 64) if exists(name, n)):
        for seed in SEEDS:
            one, other = (topologies.get(name, n, seed=seed) for _ in range(2))
            # The second is asked backwards: an answer must not depend on what was asked before.
            asked = [edges_at(one, step) for step in (*range(8), FAR)]
            assert [edges_at(other, step) for step in (FAR, *range(7, -1, -1))] == asked[::-1]


@pytest.mark.parametrize("name", SEEDED)
def test_other_seeds_give_other_graphs(name: str) -> None:
    seen = [[edges_at(topologies.get(name, 33, seed=seed), step) for step in range(8)] for seed in range(5)]
    assert all(seen[a] != seen[b] for a in range(5) for b in range(a))


def test_a_hierarchy_hands_its_seed_to_the_lanes() -> None:
    one, other = (topologies.get("hierarchical", 32, between="random-matching", seed=seed) for seed in (0, 1))
    assert [edges_at(one, step) for step in range(10)] != [edges_at(other, step) for step in range(10)]


@pytest.mark.parametrize("name", NEW_EVERY_STEP)
def test_what_claims_no_period_has_no_short_one(name: str) -> None:
    schedule = topologies.get(name, 33, seed=1)
    assert schedule.period is None
    seen = [edges_at(schedule, step) for step in range(60)]
    for period in range(1, 30):
        assert any(seen[step] != seen[step + period] for step in range(30)), f"it repeats after {period} steps"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NEW_EVERY_STEP])
def test_what_repeats_says_so(name: str) -> None:
    period = topologies.get(name, 64).period
    assert period is not None
    assert period <= 24


def test_only_epidemic_is_not_doubly_stochastic() -> None:
    """The exception in `check_step` is one: without weights that schedule would not average."""
    schedule = topologies.get("epidemic", 33)
    assert np.abs(matrix(schedule, 0).sum(axis=1) - 1).max() > 0.1


@pytest.mark.parametrize("name", NAMES)
def test_ranks_and_steps_out_of_range_are_refused(name: str) -> None:
    schedule = topologies.get(name, 4)
    for ask in (schedule.out_edges, schedule.in_neighbours, schedule.kept):
        for rank in (-1, 4):
            with pytest.raises(TopologyError, match=f"{name} has no rank {rank}: its ranks are 0 to 3"):
                ask(rank, 0)
        with pytest.raises(TopologyError, match=f"{name} has no step -1: steps are counted from 0"):
            ask(0, -1)
