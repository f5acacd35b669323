"""What a peer believes of the others: places for ranks, replanning, and fences that never come down."""

from __future__ import annotations

import pytest

import topologies
from gossip.view.view import Roster, View
from gossip.wire.messages import Address
from topologies import Schedule


class Planner:
    """Plans a ring, and remembers for how many."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, n: int) -> Schedule:
        self.asked.append(n)
        return topologies.get("ring", n)


@pytest.fixture
def planner() -> Planner:
    return Planner()


@pytest.fixture
def view(planner: Planner) -> View:
    """Of rank 5, among four whose ranks have gaps."""
    return View(5, Roster({9: 0, 2: 3, 5: 0, 7: 1}, planner))


def test_members_fill_the_places_in_the_order_of_their_ranks(view: View) -> None:
    assert list(view.members.items()) == [(2, 3), (5, 0), (7, 1), (9, 0)]
    assert view.out_edges(0) == [(Address(7, 1), 0.5)]
    assert view.in_neighbours(0) == [2]


def test_all_members_plan_the_same_ring(planner: Planner) -> None:
    members = {9: 0, 2: 3, 5: 0, 7: 1}
    following = {rank: View(rank, Roster(members, planner)).out_edges(4)[0][0].rank for rank in members}
    assert following == {2: 5, 5: 7, 7: 9, 9: 2}


def test_the_members_given_are_copied(planner: Planner) -> None:
    members = {0: 0, 1: 0}
    view = View(0, Roster(members, planner))
    view.fence(Address(1, 0))
    assert members == {0: 0, 1: 0}


def test_a_new_member_changes_the_plan(view: View, planner: Planner) -> None:
    view.admit(Address(6, 0))
    assert planner.asked == [4, 5]
    assert view.out_edges(0) == [(Address(6, 0), 0.5)]


def test_a_new_incarnation_keeps_its_place_and_the_plan(view: View, planner: Planner) -> None:
    view.admit(Address(7, 2))
    assert planner.asked == [4]
    assert view.out_edges(0) == [(Address(7, 2), 0.5)]
    assert view.incarnation(7) == 2


def test_somebody_dead_leaves_no_gap(view: View, planner: Planner) -> None:
    view.fence(Address(7, 1))
    assert planner.asked == [4, 3]
    assert view.out_edges(0) == [(Address(9, 0), 0.5)]
    assert view.incarnation(7) is None


def test_the_death_of_a_former_life_changes_nothing(view: View, planner: Planner) -> None:
    view.fence(Address(7, 0))
    assert view.incarnation(7) == 1
    assert planner.asked == [4]


def test_nobody_drops_itself(view: View) -> None:
    view.fence(Address(5, 0))
    assert view.incarnation(5) == 0


def test_those_who_see_the_same_change_share_what_they_know(planner: Planner) -> None:
    roster = Roster({0: 0, 1: 0, 2: 0}, planner)
    a, b = View(0, roster), View(1, roster)
    a.fence(Address(2, 0))
    assert 2 in b.members, "one's own view is one's own"
    b.fence(Address(2, 0))
    assert a.roster is b.roster
    assert planner.asked == [3, 2]


def test_a_fence_is_for_an_incarnation_and_all_before_it(view: View) -> None:
    view.fence(Address(2, 3))
    assert [view.fenced(Address(2, n)) for n in range(6)] == [True] * 4 + [False] * 2
    assert view.incarnation(2) is None
    assert view.known(2), "it may come back"


def test_a_fence_never_comes_down(view: View) -> None:
    view.fence(Address(2, 3))
    view.fence(Address(2, 1))
    assert view.fenced(Address(2, 3))


def test_a_fence_for_a_former_life_leaves_the_present_one_alone(view: View) -> None:
    view.fence(Address(2, 1))
    assert view.incarnation(2) == 3
    assert not view.fenced(Address(2, 3))


def test_one_comes_back_above_its_fence(view: View) -> None:
    view.fence(Address(2, 3))
    view.admit(Address(2, 4))
    assert view.in_neighbours(0) == [2]
    assert not view.fenced(view.address(2))


def test_one_that_is_fenced_is_sent_to_but_not_waited_for(view: View) -> None:
    # What is sent is a fence; the core sees to that.
    view.fence(Address(2, 3))
    view.admit(Address(2, 3))
    assert view.in_neighbours(0) == []
    assert view.fenced(view.address(2))
    assert view.incarnation(2) == 3


@pytest.mark.parametrize(("rank", "known"), [(2, True), (5, True), (9, True), (3, False), (0, False)])
def test_who_is_known(view: View, rank: int, known: bool) -> None:
    assert view.known(rank) is known
    assert (view.incarnation(rank) is not None) is known


def test_alone_there_is_nobody_to_send_to(view: View) -> None:
    for address in (Address(2, 3), Address(7, 1), Address(9, 0)):
        view.fence(address)
    assert view.members == {5: 0}
    assert (view.out_edges(3), view.in_neighbours(3)) == ([], [])


@pytest.mark.parametrize("topology", ["random-matching", "one-peer-hypercube", "bidirectional-ring", "complete"])
def test_of_each_pair_that_share_an_edge_both_ways_one_begins_and_each_does_at_times(topology: str) -> None:
    n = 8
    roster = Roster(dict.fromkeys(range(n), 0), lambda n: topologies.get(topology, n))
    views = [View(rank, roster) for rank in range(n)]
    begun: dict[tuple[int, int], list[int]] = {}
    for turn in range(400):
        for one in range(n):
            for other in (address.rank for address, _ in views[one].out_edges(turn)):
                assert views[one].is_asked(other, turn) != views[other].is_asked(one, turn)
                if not views[one].is_asked(other, turn):
                    begun.setdefault((min(one, other), max(one, other)), []).append(one)
    assert begun
    for pair, who in begun.items():
        assert set(who) == set(pair)
        assert len(who) / 4 <= who.count(pair[0]) <= len(who) * 3 / 4, (pair, who)


def test_on_an_edge_that_goes_one_way_its_sender_begins(view: View) -> None:
    assert not any(view.is_asked(7, turn) for turn in range(20))


def test_given_degrees_the_leaves_of_a_star_begin_and_equals_draw() -> None:
    roster = Roster(dict.fromkeys(range(8), 0), lambda n: topologies.get("star", n))
    hub, leaf = View(0, roster), View(5, roster)
    for turn in range(20):
        assert hub.is_asked(5, turn, 7)
        assert not leaf.is_asked(0, turn, 1)
    assert {hub.is_asked(5, turn, 1) for turn in range(20)} == {False, True}
