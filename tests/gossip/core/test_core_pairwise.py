"""Pairwise averaging: half for half, both end with the mean, and a lost answer loses nothing."""

from __future__ import annotations

import pytest
from hand_swarm import ONE_WAY, PAIR, Hand, only, parcel

from gossip import events
from gossip.wire.messages import Ack, Address, Parcel, Pull

HERE, THERE = Address(0, 0), Address(1, 0)


def pair(*values: float, **more: object) -> Hand:
    """Return peers of which 0 pushes to 1 in the first turn, and then nobody to anybody."""
    return Hand(*(values or (1.0, 4.0)), turns=[ONE_WAY, {}], algorithm="adpsgd", **more)  # type: ignore[arg-type]


def test_with_equal_weights_both_end_with_exactly_the_mean() -> None:
    hand = pair(1.0, 4.0)
    hand.step(0)
    hand.settle()
    hand.step(1)
    hand.cores[1].turns[:] = [1]  # 1 has no push of its own here
    hand.settle()
    hand.step(0)
    assert [core.mass.values[0] for core in hand.cores] == [2.5, 2.5]
    assert [core.mass.weights for core in hand.cores] == [[1.0], [1.0]]


def test_the_push_asks_for_the_fraction_that_it_gives() -> None:
    hand = pair()
    hand.step(0)
    assert [(p.weight, p.ask) for p in hand.parcels()] == [(0.5, 0.5)]


def test_the_answer_is_of_what_was_held_before_the_merge() -> None:
    hand = pair(1.0, 4.0)
    hand.step(0)
    hand.deliver(Parcel)
    assert not hand.parcels(), "no answer before the trainer comes to its step boundary"
    hand.step(1)
    (answer,) = hand.parcels()
    assert (answer.origin, answer.destination, answer.weight, answer.ask) == (THERE, HERE, 0.5, 0.0)
    assert answer.values.tolist() == [4.0]
    assert hand.cores[1].mass.values.tolist() == [2.5]


def test_the_answer_is_the_fraction_that_was_asked_for() -> None:
    hand = pair()
    hand.tell(1, parcel(origin=0, to=1, weight=0.1, ask=0.3))
    hand.step(1)
    (answer,) = hand.parcels()
    assert answer.weight == pytest.approx(0.3)
    assert hand.cores[1].mass.weights == pytest.approx([0.8])


def test_a_parcel_that_asks_for_nothing_is_not_answered() -> None:
    hand = pair()
    hand.tell(1, parcel(origin=0, to=1))
    hand.lose()
    hand.step(1)
    assert not hand.post


def test_several_who_ask_are_averaged_with_one_after_the_other() -> None:
    hand = pair(1.0, 4.0, 7.0)
    hand.tell(1, parcel(origin=0, to=1, weight=0.5, value=1.0, ask=0.5))
    hand.tell(1, parcel(origin=2, to=1, weight=0.5, value=7.0, ask=0.5))
    hand.step(1)
    assert [p.destination.rank for p in hand.parcels()] == [0, 2]
    assert [p.weight for p in hand.parcels()] == pytest.approx([0.5, 0.5])
    assert [p.values.tolist() for p in hand.parcels()] == [[4.0], [2.5]], "the second gets of the first pair's mean"
    assert hand.cores[1].mass.weights == pytest.approx([1.0])
    assert hand.cores[1].mass.values.tolist() == pytest.approx([(2.5 + 7.0) / 2])


def test_what_others_owe_is_merged_before_it_is_divided() -> None:
    hand = pair(1.0, 4.0, 7.0)
    hand.tell(1, parcel(origin=0, to=1, weight=0.5, value=1.0, ask=0.5))
    hand.tell(1, parcel(origin=2, to=1, weight=1.0, value=10.0))
    hand.step(1)
    (answer,) = hand.parcels()
    assert answer.weight == pytest.approx(1.0), "half of all that there is, not of what lay there before"
    assert answer.values.tolist() == [7.0]


def test_where_there_is_no_room_those_who_ask_share_what_waits() -> None:
    hand = pair(1.0, 4.0, 7.0, inbox_bytes=16, weight_floor=0.0)
    for sequence, origin in enumerate((0, 2)):
        hand.tell(1, parcel(origin=origin, to=1, sequence=sequence, weight=0.5, value=1.0, ask=0.5))
    assert hand.cores[1].inbox.nbytes == 8
    hand.step(1)
    assert [p.weight for p in hand.parcels()] == pytest.approx([0.5, 0.25]), "each of what the one before left"
    assert all(p.values.tolist() == [4.0] for p in hand.parcels())
    assert hand.cores[1].mass.weights[0] + sum(p.weight for p in hand.parcels()) == pytest.approx(2.0)


def test_a_parcel_that_comes_twice_is_answered_once() -> None:
    hand = pair()
    hand.step(0)
    hand.post += hand.post
    hand.deliver(Parcel), hand.deliver(Parcel)
    hand.step(1)
    assert len(hand.parcels()) == 1
    assert [type(message) for message in hand.mail()] == [Ack, Ack, Parcel]


@pytest.mark.parametrize("lost", [Ack, Parcel, (Ack, Parcel)])
def test_when_the_answer_is_lost_mass_is_conserved_and_it_comes_again(lost: type) -> None:
    hand = pair()
    hand.step(0)
    hand.deliver(Parcel)
    hand.step(1)
    hand.lose(lost)
    hand.settle()
    for rank in (0, 1):
        hand.tick(rank, 1.0)
    hand.settle()
    assert hand.total() == pytest.approx((2.0, 5.0))
    hand.step(0)
    assert [core.mass.values[0] for core in hand.cores] == [2.5, 2.5]


def test_when_the_one_that_asked_died_there_is_no_answer() -> None:
    hand = pair()
    hand.tell(1, parcel(origin=0, to=1, weight=0.5, ask=0.5))
    hand.feed(1, events.PeerDied(HERE))
    hand.lose()
    hand.step(1)
    assert not hand.post
    assert hand.cores[1].mass.weights == [1.5]


def test_when_the_one_that_asked_lives_again_there_is_no_answer_to_its_former_life() -> None:
    hand = pair()
    hand.tell(1, parcel(origin=0, to=1, weight=0.5, ask=0.5))
    hand.feed(1, events.PeerAlive(Address(0, 1)))
    hand.lose()
    hand.step(1)
    assert not hand.parcels()


def test_a_parcel_that_comes_back_asks_its_own_sender_for_nothing() -> None:
    hand = pair()
    hand.step(0)
    hand.lose()
    hand.feed(0, events.PeerDied(THERE))
    hand.step(0)
    assert not hand.post
    assert hand.cores[0].mass.weights == [1.0]


def test_an_answer_keeps_the_floor() -> None:
    hand = pair(weight_floor=0.6)
    hand.tell(1, parcel(origin=0, to=1, weight=0.5, ask=0.5))
    hand.step(1)
    (answer,) = hand.parcels()
    assert answer.weight == pytest.approx(0.4)


def test_an_answer_that_the_floor_leaves_little_of_is_not_sent() -> None:
    hand = pair(weight_floor=0.9)
    hand.tell(1, parcel(origin=0, to=1, weight=0.5, ask=0.5))
    hand.lose()
    hand.step(1)
    assert not hand.post


def test_while_an_answer_is_on_its_way_there_is_not_another() -> None:
    hand = pair()
    for sequence in (0, 1):
        hand.tell(1, parcel(origin=0, to=1, sequence=sequence, weight=0.1, ask=0.2))
        hand.step(1)
    assert len(hand.parcels()) == 1


def test_of_two_that_would_push_to_each_other_one_begins_and_both_end_with_the_mean() -> None:
    for turn in range(8):
        hand = Hand(1.0, 4.0, turns=[*[{}] * turn, PAIR, {}, {}], algorithm="adpsgd")
        for core in hand.cores:
            core.turns[:] = [turn]
        for rank in (0, 1):
            hand.step(rank)
        (push,) = hand.parcels()
        hand.settle()
        hand.step(push.destination.rank)
        (answer,) = hand.parcels()
        assert (answer.destination, push.ask, answer.ask) == (push.origin, 0.5, 0.0)
        hand.settle()
        hand.step(push.origin.rank)
        assert [core.mass.values[0] for core in hand.cores] == [2.5, 2.5]


def test_both_ways_at_once_conserves_mass_and_converges() -> None:
    hand = Hand(1.0, 4.0, turns=[PAIR], algorithm="adpsgd")
    for _ in range(30):
        hand.round()
        assert hand.total() == pytest.approx((2.0, 5.0), rel=1e-12)
    assert [core.mass.values[0] for core in hand.cores] == pytest.approx([2.5, 2.5], abs=1e-5)
    assert not only(hand.settle(), events.RejectedFrame)


def test_before_the_move_what_is_owed_is_merged_and_who_asks_waits_for_it() -> None:
    hand = pair(1.0, 4.0, 7.0)
    hand.tell(1, parcel(origin=0, to=1, weight=0.5, value=1.0, ask=0.5))
    hand.tell(1, parcel(origin=2, to=1, weight=1.0, value=8.0))
    hand.feed(1, events.Merge())
    core = hand.cores[1]
    assert not hand.parcels()
    assert (core.mass.weights, core.mass.values.tolist()) == ([2.0], [6.0])
    assert core.inbox.nbytes == core.inbox.asking == 8
    core.mass.values[:] += 1.0  # the move
    hand.step(1)
    (answer,) = hand.parcels()
    assert (answer.weight, answer.values.tolist()) == (1.0, [7.0]), "half of what was held, moved"
    assert core.mass.values.tolist() == [(7.0 + 0.5 * 1.0) / 1.5], "and what asked has been moved by who pushed it"
    assert core.inbox.nbytes == core.inbox.asking == 0


def test_who_has_nothing_to_give_asks_for_some_once_in_a_round_trip() -> None:
    hand = Hand(1.0, 4.0, turns=[ONE_WAY], algorithm="adpsgd", weight_floor=0.999, resend_first=1.0)

    def pulls() -> int:
        asked = sum(isinstance(message, Pull) for message in hand.mail())
        hand.lose()
        return asked

    hand.step(0)
    assert pulls() == 1
    hand.step(0)
    assert pulls() == 0, "it has just asked"
    hand.now += 1.0
    hand.step(0)
    assert pulls() == 1


def test_who_waits_for_an_answer_does_not_ask_for_more() -> None:
    """Of two neighbours the first has not answered yet, and there is nothing left for the second."""
    hand = Hand(1.0, 4.0, 7.0, turns=[ONE_WAY, {0: {2: 0.5}}], algorithm="adpsgd", weight_floor=0.5)
    hand.step(0)
    assert [type(message) for message in hand.mail()] == [Parcel]
    hand.lose()
    hand.step(0)
    assert not [message for message in hand.mail() if isinstance(message, Pull)]
