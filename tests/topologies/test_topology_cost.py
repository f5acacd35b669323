"""What a peer pays for planning a step: counted in interpreter steps and bytes, which no busy machine changes.

A peer computes its own edges only, in time proportional to its degree, so a swarm of 100,000 costs each of its
peers what a swarm of 1,000 does. Scanning or shuffling all ranks, be it in Python (counted steps) or
inside numpy or `sorted` (counted memory), would show here a hundredfold.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import topologies

SMALL, LARGE = 1_000, 100_000


@pytest.fixture(autouse=True)
def _what_is_done_once_is_done() -> None:
    """Look for installed topologies before anything is counted."""
    topologies.names()


def opcodes(work: Callable[[], Any]) -> int:
    """Return how many bytecode instructions ``work`` runs, in all functions it calls."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    gc.disable()  # what others left behind would be cleaned up in the middle, and counted
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def peak_bytes(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def costs(text: str, n: int) -> tuple[int, int, int]:
    """Return the most instructions and bytes that any of some peers needs for a step, and the largest degree."""
    schedule = topologies.parse(text, n)
    ranks = [0, 1, n // 3, n - 2, n - 1]
    steps = [0, 1, 5, 12, 10**6]
    schedule.out_edges(0, 4)  # whatever is done once only
    asked = [(rank, step) for step in steps for rank in ranks]
    most = max(opcodes(lambda a=a: schedule.out_edges(*a)) for a in asked)
    # Other steps, so that nothing is answered from a cache.
    memory = max(peak_bytes(lambda a=a: schedule.out_edges(a[0], a[1] + 2)) for a in asked)
    return most, memory, max(len(schedule.out_edges(*a)) for a in asked)


@pytest.mark.parametrize(
    "text",
    [
        "ring",
        "one-peer-exponential",
        "exponential",
        "equidyn",
        "equidyn-undirected",
        "epidemic",
        "epidemic:s=4",
        "epidemic-regular",
        "epidemic-regular:s=4",
        "random-matching",
        "base",
        "base:k=4",
        "bidirectional-ring",
        "de-bruijn",
        "kautz",
        "equistatic",
        "torus:rows=10",
    ],
)
def test_planning_a_step_costs_no_more_in_a_swarm_of_100_000(text: str) -> None:
    steps_small, bytes_small, degree_small = costs(text, SMALL)
    steps_large, bytes_large, degree_large = costs(text, LARGE)
    # Degrees grow with log n at most; some formulas walk the digits of n, of which there are log n too.
    growth = max(2.0, degree_large / degree_small)
    assert steps_large <= growth * steps_small + 200
    assert steps_large <= 6_000
    assert bytes_large <= growth * bytes_small + 2_000
    assert bytes_large <= 16_000, "an array of all ranks would be 800,000"


@pytest.mark.parametrize("name", ["hypercube", "one-peer-hypercube"])
def test_a_hypercube_costs_its_dimension(name: str) -> None:
    assert costs(name, 2**17)[0] <= 2 * costs(name, 2**10)[0] + 200


@pytest.mark.parametrize("name", ["ring", "one-peer-exponential", "equidyn", "random-matching", "epidemic-regular"])
def test_knowing_who_sends_costs_no_more_either(name: str) -> None:
    counted = []
    for n in (SMALL, LARGE):
        schedule = topologies.get(name, n)
        counted.append(max(opcodes(lambda s=schedule, t=t: s.in_neighbours(s.n - 1, t)) for t in range(8)))
    assert counted[1] <= 2 * counted[0] + 200


@pytest.mark.parametrize("k", [1, 2, 4])
def test_base_for_10_000_peers_is_planned_for_one_rank_without_the_others(k: int) -> None:
    def plan() -> None:
        schedule = topologies.get("base", 10_000, k=k)
        assert schedule.period is not None
        for step in range(schedule.period):
            schedule.out_edges(4_321, step)

    assert opcodes(plan) <= 50_000  # not even five for each rank, over a whole period
    assert peak_bytes(plan) <= 64_000


@pytest.mark.parametrize("name", ["ring", "one-peer-exponential", "epidemic", "random-matching", "base", "equidyn"])
def test_making_a_schedule_does_not_look_at_all_ranks(name: str) -> None:
    assert opcodes(lambda: topologies.get(name, LARGE)) <= 50_000  # half an instruction for each


def test_the_count_sees_work_that_grows_with_n() -> None:
    assert opcodes(lambda: [rank for rank in range(1000) if rank % 2]) > 2_000
    assert peak_bytes(lambda: sorted(range(100_000))) > 700_000
