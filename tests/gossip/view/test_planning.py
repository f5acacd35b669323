"""Which schedule peers follow when they are not as many as the topology was asked for."""

from __future__ import annotations

import pytest

from gossip import policies
from gossip.errors import SettingsError
from gossip.view.planning import planner
from topologies import TopologyError, parse

ALGORITHMS = [
    *policies.names(),
    *(f"{name}:differences=true" for name in ("local", "slowmo", "ssd")),
    "easgd:alpha=0.5",
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_stands_in_suits_any_number_of_peers(algorithm: str) -> None:
    policy = policies.parse(algorithm)
    for n in range(1, 18):
        policy.check(parse(policy.default_topology, n, seed=3))


@pytest.mark.parametrize(
    ("algorithm", "topology", "name"),
    [
        ("sgp", "hypercube", "one-peer-exponential"),
        ("dpsgd", "hypercube", "base"),
        ("choco", "hypercube", "bidirectional-ring"),
        ("slowmo:differences=true", "hypercube", "bidirectional-ring"),
        ("slowmo", "hypercube", "one-peer-exponential"),
        ("noloco", "one-peer-hypercube", "random-matching"),
        ("adpsgd", "one-peer-hypercube", "random-matching"),
    ],
)
def test_a_topology_that_does_not_exist_for_the_survivors_gives_way(algorithm: str, topology: str, name: str) -> None:
    told: list[str] = []
    plan = planner(topology, policies.parse(algorithm), 8, 5, told.append)
    assert [plan(n).name for n in (8, 4, 7, 6, 9)] == [topology, topology, name, name, name]
    assert len(told) == 1, "once is enough"
    assert f"is not for 7 peers; where it is not, {name} stands in" in told[0]


def test_so_does_one_that_does_not_suit_the_algorithm_for_as_many() -> None:
    """The hub of a larger star has more neighbours than it has fractions to give."""
    plan = planner("star", policies.parse("easgd:alpha=0.2"), 5, 0)
    assert [plan(n).name for n in (5, 4, 6)] == ["star", "star", "random-matching"]


def test_what_was_asked_for_has_to_be_possible() -> None:
    with pytest.raises(TopologyError, match="power of two"):
        planner("hypercube", policies.parse("sgp"), 6, 0)(6)
    with pytest.raises(SettingsError, match="use a symmetric topology"):
        planner("ring", policies.parse("dpsgd"), 6, 0)(6)


def test_nobody_is_told_of_a_newcomer_that_is_not_let_in_yet() -> None:
    told: list[str] = []
    planner("random-regular:d=4", policies.parse("dpsgd"), 8, 0, told.append)(1)
    assert told == []


def test_random_topologies_are_drawn_by_the_seed_everywhere() -> None:
    one, same, other = (planner("one-peer-hypercube", policies.parse("noloco"), 8, seed)(7) for seed in (1, 1, 2))
    edges = [
        [schedule.out_edges(rank, step) for rank in range(7) for step in range(9)] for schedule in (one, same, other)
    ]
    assert edges[0] == edges[1] != edges[2]
