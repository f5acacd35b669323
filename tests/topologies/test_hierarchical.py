"""The hierarchy: inside a host in even steps, between hosts in odd ones, however the hosts are given."""

from __future__ import annotations

import numpy as np
import pytest
from topology_cases import matrix

import topologies
from topologies import BadParameter, Schedule


def group_of(sizes: list[int]) -> list[int]:
    return [number for number, size in enumerate(sizes) for _ in range(size)]


def check_hierarchy(schedule: Schedule, host: list[int]) -> None:
    """Even steps stay inside a host and average it exactly; odd steps only cross hosts."""
    n = schedule.n
    size = [host.count(host[rank]) for rank in range(n)]
    crossed = 0
    for step in range(0, 2 * (schedule.period or 20), 2):
        for rank in range(n):
            inside = schedule.out_edges(rank, step)
            assert all(host[other] == host[rank] and fraction == 1 / size[rank] for other, fraction in inside)
            assert len(inside) == size[rank] - 1
            between = schedule.out_edges(rank, step + 1)
            assert all(host[other] != host[rank] for other, _ in between)
            crossed += len(between)
    assert crossed


@pytest.mark.parametrize(
    ("text", "n", "sizes"),
    [
        ("hierarchical", 16, [4, 4, 4, 4]),
        ("hierarchical", 12, [4, 4, 4]),
        ("hierarchical:groups=2", 12, [6, 6]),
        ("hierarchical:groups=3", 11, [4, 4, 3]),
        ("hierarchical:groups=2+5+4", 11, [2, 5, 4]),
        ("hierarchical:groups=1+2", 3, [1, 2]),
        ("hierarchical:between=ring,groups=4", 12, [3, 3, 3, 3]),
        ("hierarchical:between=[epidemic-regular:s=2],groups=4", 12, [3, 3, 3, 3]),
        ("hierarchical:between=random-matching", 20, [5, 5, 5, 5]),
    ],
)
def test_groups_are_runs_of_ranks(text: str, n: int, sizes: list[int]) -> None:
    check_hierarchy(topologies.parse(text, n), group_of(sizes))


@pytest.mark.parametrize("hosts", ["aabbcc", "abcabc", "abbacc", "aaaabc"])
@pytest.mark.parametrize("between", ["base", "random-matching", "bidirectional-ring"])
def test_hosts_may_be_in_any_order(hosts: str, between: str) -> None:
    schedule = topologies.get("hierarchical", 6, hosts=tuple(hosts), between=between)
    check_hierarchy(schedule, ["abc".index(host) for host in hosts])


def test_the_default_groups_are_about_the_root_of_n_and_equal_if_n_allows() -> None:
    for n, groups in ((2, 1), (4, 2), (9, 3), (12, 3), (16, 4), (20, 4), (33, 3), (64, 8), (100, 10)):
        schedule = topologies.get("hierarchical", n)
        inside = {len(schedule.out_edges(rank, 0)) + 1 for rank in range(n)}
        assert inside == {n // groups}
    sizes = [len(topologies.get("hierarchical", 23).out_edges(rank, 0)) + 1 for rank in range(23)]
    assert sorted(set(sizes)) == [5, 6]  # 23 is prime: four groups that differ by one


def test_lanes_run_the_named_topology_among_equal_places() -> None:
    """Three groups of four: the lanes are {0, 4, 8}, {1, 5, 9}, ... and each is a ring of three."""
    schedule = topologies.parse("hierarchical:groups=3,between=ring", 12)
    for rank in range(12):
        assert schedule.out_edges(rank, 1) == (((rank + 4) % 12, 0.5),)
        assert schedule.in_neighbours(rank, 1) == ((rank - 4) % 12,)


def test_the_lanes_take_their_own_steps() -> None:
    """Step 2t + 1 of the whole is step t of the lanes, or half of the steps of `between` would be left out."""
    lane = topologies.get("base", 5)
    schedule = topologies.parse("hierarchical:groups=5", 15)
    assert schedule.period == 2 * (lane.period or 0)
    for step in range(lane.period or 0):
        for place in range(5):
            expected = tuple((3 * other, fraction) for other, fraction in lane.out_edges(place, step))
            assert schedule.out_edges(3 * place, 2 * step + 1) == expected


def test_a_lane_has_only_the_groups_that_are_large_enough() -> None:
    schedule = topologies.parse("hierarchical:groups=3+1+2,between=complete", 6)
    assert [dict(schedule.out_edges(rank, 1)) for rank in range(6)] == [
        {3: 1 / 3, 4: 1 / 3},
        {5: 1 / 2},
        {},
        {0: 1 / 3, 4: 1 / 3},
        {0: 1 / 3, 3: 1 / 3},
        {1: 1 / 2},
    ]
    assert np.allclose(matrix(schedule, 1).sum(axis=1), 1)


def test_the_period_fits_lanes_of_different_lengths() -> None:
    schedule = topologies.parse("hierarchical:groups=4+4+4+4+1,between=one-peer-exponential", 17)
    assert schedule.period == 2 * 6  # a lane of 5 repeats after 3 steps, the lanes of 4 after 2
    assert topologies.parse("hierarchical:between=random-matching", 16).period is None


def test_one_group_has_no_between_and_lone_members_no_inside() -> None:
    together = topologies.parse("hierarchical:groups=1,between=ring", 5)
    assert together.period == 1
    assert all(len(together.out_edges(rank, 3)) == 4 for rank in range(5))
    alone = topologies.parse("hierarchical:groups=5,between=one-peer-exponential", 5)
    same = topologies.get("one-peer-exponential", 5)
    assert alone.period == same.period
    assert [alone.out_edges(2, step) for step in range(6)] == [same.out_edges(2, step) for step in range(6)]


def test_a_hierarchy_of_hierarchies() -> None:
    """Eight hosts in two racks: brackets inside brackets keep their commas."""
    text = "hierarchical:groups=8,between=[hierarchical:groups=2,between=[base:k=2]]"
    schedule = topologies.parse(text, 32)
    host, rack = group_of([4] * 8), group_of([16] * 2)
    for step in range(schedule.period or 0):
        for rank in range(32):
            for other, _ in schedule.out_edges(rank, step):
                assert (host[other] == host[rank]) == (step % 2 == 0)
                assert step % 4 != 1 or rack[other] == rack[rank]
                assert step % 4 != 3 or rack[other] != rack[rank]
    assert topologies.analyse(schedule).connected


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"groups": 3, "hosts": ("a",) * 12}, "give groups or hosts, not both"),
        ({"hosts": ("a", "b")}, "hosts lists 2 hosts for 12 peers"),
        ({"groups": 0}, "groups must be 1 to 12 for 12 peers, not 0"),
        ({"groups": 13}, "groups must be 1 to 12 for 12 peers, not 13"),
        ({"groups": (4, 4)}, r"positive sizes that sum to n = 12, not 4\+4"),
        ({"groups": (12, 0)}, r"positive sizes that sum to n = 12, not 12\+0"),
        ({"groups": (13, -1)}, r"positive sizes that sum to n = 12, not 13\+-1"),
        ({"between": "base:k=x"}, "hierarchical, between: base: k takes an integer, not 'x'"),
        ({"between": "base:q=1"}, "hierarchical, between: base has no parameter 'q'"),
    ],
)
def test_what_is_no_hierarchy_is_refused(parameters: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadParameter, match=complaint):
        topologies.get("hierarchical", 12, **parameters)


def test_what_cannot_run_between_is_refused_as_itself() -> None:
    with pytest.raises(topologies.UnknownTopology, match="did you mean exponential"):
        topologies.get("hierarchical", 12, between="exponental")
    with pytest.raises(topologies.UnsupportedSize, match="one-peer-hypercube needs a power of two, not n = 3"):
        topologies.get("hierarchical", 12, between="one-peer-hypercube")
