"""Mass that waits for the step boundary, and turns that are skipped after a refusal."""

from __future__ import annotations

import pytest
from hand_swarm import parcel
from hypothesis import given
from hypothesis import strategies as st

from gossip.books.inbox import Inbox
from gossip.exchange.backoff import Backoff


def inbox(shards: int = 2, limit: int = 100, in_order: bool = False) -> Inbox:
    return Inbox(shards, limit, in_order)


def test_an_empty_inbox_has_nothing_due() -> None:
    box = inbox()
    assert box.due(0, 10) == []
    assert (list(box), box.nbytes, box.weight(0)) == ([], 0, 0)


def test_what_waits_is_due_once() -> None:
    box = inbox()
    box.add(parcel(value=[1.0, 2.0], weight=0.5), answer=False)
    assert (box.nbytes, box.weight(0), box.weight(1)) == (16, 0.5, 0)
    assert box.due(1, 10) == []
    (pile,) = box.due(0, 10)
    assert (pile.shard, pile.weight, pile.values.tolist()) == (0, 0.5, [1.0, 2.0])
    assert box.due(0, 10) == []
    assert (box.nbytes, box.weight(0)) == (0, 0)


def test_out_of_order_all_of_a_shard_is_one_pile_of_the_mean() -> None:
    box = inbox()
    for turn, value, weight in ((7, 1.0, 0.5), (3, 4.0, 0.25), (900, 7.0, 0.25)):
        box.add(parcel(turn=turn, value=value, weight=weight), answer=False)
    assert box.nbytes == 8
    (pile,) = box.due(0, 0)
    assert pile.weight == 1.0
    assert pile.values.tolist() == pytest.approx([0.5 + 1.0 + 1.75])


def test_in_order_each_turn_waits_for_itself() -> None:
    box = inbox(in_order=True)
    for turn in (5, 3, 4, 3):
        box.add(parcel(turn=turn, value=float(turn), weight=0.25), answer=False)
    assert box.nbytes == 24
    assert box.weight(0) == 1.0
    assert box.due(0, 3) == [], "before turn 3 is before 3"
    assert [(pile.values[0], pile.weight) for pile in box.due(0, 5)] == [(3.0, 0.5), (4.0, 0.25)]
    assert box.weight(0) == 0.25
    assert [pile.values[0] for pile in box.due(0, 6)] == [5.0]
    assert box.nbytes == 0


def test_when_order_is_over_nothing_waits_for_its_turn() -> None:
    box = Inbox(1, 100, in_order=True, piles=4)
    box.add(parcel(turn=7, value=7.0), answer=False)
    box.add(parcel(origin=2, turn=9, value=9.0, ask=0.5), answer=True)
    assert (box.nbytes, box.asking) == (16, 8)
    assert box.due(0, 3) == []
    box.in_order = False
    box.add(parcel(sequence=1, turn=8, value=8.0), answer=False)
    assert [pile.values[0] for pile in box.due(0, 3, owed=True)] == [8.0, 7.0], "but for who asks"
    assert (box.nbytes, box.asking) == (8, 8)
    (pile,) = box.due(0, 3)
    assert [ask.to.rank for ask in pile.asks] == [2]
    assert (box.nbytes, box.asking) == (0, 0)


def test_piling_up_touches_no_parcel() -> None:
    box = inbox()
    first, second = parcel(value=1.0), parcel(value=3.0)
    for one in (first, second):
        one.values.flags.writeable = False
        box.add(one, answer=False)
    assert [pile.values.tolist() for pile in box] == [[2.0]]
    assert (first.values.tolist(), second.values.tolist()) == ([1.0], [3.0])


def test_who_asks_is_remembered_and_comes_last_each_by_itself() -> None:
    box = Inbox(1, 100, in_order=False, piles=4)
    for origin, answer in ((1, True), (2, False), (3, True)):
        box.add(parcel(origin=origin, ask=0.5), answer=answer)
    piles = box.due(0, 0)
    assert [[(ask.to.rank, ask.fraction) for ask in pile.asks] for pile in piles] == [[], [(1, 0.5)], [(3, 0.5)]]
    assert (list(box), box.nbytes) == ([], 0)


def test_all_that_ask_are_one_pile_where_they_are_answered_together() -> None:
    box = inbox()
    for origin in (1, 2, 3):
        box.add(parcel(origin=origin, ask=0.5), answer=True)
    (pile,) = box.due(0, 0)
    assert [ask.to.rank for ask in pile.asks] == [1, 2, 3]


def test_what_is_left_when_some_is_taken_out_is_due_all_the_same() -> None:
    box = Inbox(1, 100, in_order=False, piles=9)
    for origin in (1, 2, 3):
        box.add(parcel(origin=origin, ask=0.5), answer=True)
    assert box.take(0) is not None
    assert (box.nbytes, box.asking) == (16, 16)
    assert box.due(0, 0, owed=True) == []
    assert sorted(ask.to.rank for pile in box.due(0, 0) for ask in pile.asks) == [2, 3]
    assert (box.nbytes, box.asking, list(box)) == (0, 0, [])


def test_whoever_asks_leaves_room_in_every_shard_for_what_asks_for_nothing() -> None:
    shards = 5
    box = Inbox(shards, 3 * shards * 8, in_order=False, piles=3)
    for origin in range(1, 9):
        for shard in range(shards):
            assert box.room(parcel(origin=origin, shard=shard, ask=0.5))
            box.add(parcel(origin=origin, shard=shard, ask=0.5), answer=True)
    assert box.nbytes == 2 * shards * 8
    for shard in range(shards):
        assert box.room(parcel(origin=9, shard=shard))
        box.add(parcel(origin=9, shard=shard), answer=False)
    for shard in range(shards):
        asks = [[ask.to.rank for ask in pile.asks] for pile in box.due(shard, 0)]
        assert asks == [[], [1], [2, 3, 4, 5, 6, 7, 8]]


def test_the_limit_is_in_bytes_and_the_first_always_fits() -> None:
    box = inbox(limit=16, in_order=True)
    assert box.room(parcel(value=[1.0] * 100))
    box.add(parcel(turn=1), answer=False)
    assert box.room(parcel(turn=2))
    assert not box.room(parcel(turn=2, value=[1.0, 2.0]))
    box.add(parcel(turn=2), answer=False)
    assert not box.room(parcel(turn=3))
    assert not box.room(parcel(turn=1, shard=1)), "the same turn of another shard is another pile"
    assert box.room(parcel(turn=1)), "piled up it takes no room"
    box.due(0, 2)
    assert box.room(parcel(turn=3))


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), st.floats(-9, 9), st.floats(0.01, 1)), max_size=20),
    st.lists(st.integers(0, 7), max_size=3),
)
def test_no_mass_is_lost_in_the_inbox(
    in_order: bool, arrivals: list[tuple[int, int, float, float]], turns: list[int]
) -> None:
    box = inbox(in_order=in_order)
    for number, (shard, turn, value, weight) in enumerate(arrivals):
        box.add(parcel(sequence=number, shard=shard, turn=turn, value=value, weight=weight), answer=False)
    for shard in (0, 1):
        mine = [(turn, value, weight) for s, turn, value, weight in arrivals if s == shard]
        assert box.weight(shard) == pytest.approx(sum(weight for _, _, weight in mine))
        piles = [pile for turn in [*sorted(turns), 7] for pile in box.due(shard, turn)]
        assert sum(pile.weight for pile in piles) == pytest.approx(sum(weight for _, _, weight in mine))
        x = sum(pile.weight * pile.values[0] for pile in piles)
        assert x == pytest.approx(sum(value * weight for _, value, weight in mine), abs=1e-9)
        assert len(piles) == (len({turn for turn, _, _ in mine}) if in_order else bool(mine))
    assert box.nbytes == 0


def skips(backoff: Backoff, rank: int = 1, shard: int = 0) -> int:
    """Return how many turns are skipped until one is not."""
    count = 0
    while backoff.skip(rank, shard):
        count += 1
    return count


def test_each_refusal_doubles_the_turns_to_skip_up_to_16() -> None:
    backoff = Backoff()
    counts = [skips(backoff)]
    for _ in range(7):
        backoff.refused(1, 0)
        counts.append(skips(backoff))
    assert counts == [0, 1, 2, 4, 8, 16, 16, 16]


def test_an_acceptance_starts_anew() -> None:
    backoff = Backoff()
    for _ in range(3):
        backoff.refused(1, 0)
        skips(backoff)
    backoff.accepted(1, 0)
    assert skips(backoff) == 0
    backoff.refused(1, 0)
    assert skips(backoff) == 1


def test_neighbours_and_shards_are_apart() -> None:
    backoff = Backoff()
    backoff.refused(1, 0)
    assert [skips(backoff, 2, 0), skips(backoff, 1, 1), skips(backoff, 1, 0)] == [0, 0, 1]


def test_a_neighbour_that_died_is_forgotten_and_no_other() -> None:
    backoff = Backoff()
    for rank, shard in ((1, 0), (1, 1), (2, 0)):
        backoff.refused(rank, shard)
    backoff.forget(1)
    assert [skips(backoff, 1, 0), skips(backoff, 1, 1), skips(backoff, 2, 0)] == [0, 0, 1]
    backoff.forget(9)
