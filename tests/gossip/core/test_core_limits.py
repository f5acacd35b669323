"""What bounds a peer: one parcel per shard and neighbour, bytes, the least and the most weight, and backing off."""

from __future__ import annotations

import pytest
from hand_swarm import ONE_WAY, Hand, only, parcel

from gossip import events
from gossip.wire.messages import Ack, Address, Parcel, Pass, Refusal

HERE, THERE = Address(0, 0), Address(1, 0)


def one_way(*values: object, fraction: float = 0.5, **more: object) -> Hand:
    """Return peers of which 0 pushes to 1 in every turn."""
    return Hand(*(values or (1.0, 3.0)), turns=[{0: {1: fraction}}], **{"algorithm": "osgp", **more})  # type: ignore[arg-type]


def test_at_most_one_parcel_of_a_shard_is_on_its_way_to_a_neighbour() -> None:
    hand = one_way()
    hand.step(0)
    hand.step(0)
    assert [type(message) for message in hand.mail()] == [Parcel, Pass]
    assert hand.cores[0].mass.weights == [0.5], "what is not sent is not given"
    hand.tell(0, Ack(THERE, HERE, 0))
    hand.step(0)
    assert hand.parcels()[-1].sequence == 1
    assert hand.parcels()[-1].turn == 2


def test_a_neighbour_whose_parcel_is_unanswered_does_not_hold_up_another() -> None:
    hand = Hand(1.0, 2.0, 3.0, turns=[{0: {1: 0.25}}, {0: {2: 0.25}}], algorithm="osgp")
    hand.step(0)
    hand.step(0)
    assert [p.destination.rank for p in hand.parcels()] == [1, 2]


def test_the_byte_budget_of_a_neighbour_bounds_what_is_on_its_way() -> None:
    hand = one_way([1.0] * 4, [2.0] * 4, shards=4, neighbour_bytes=16)
    hand.step(0)
    assert [(type(m), m.shard) for m in hand.mail()] == [(Parcel, 0), (Parcel, 1), (Pass, 2), (Pass, 3)]  # type: ignore[union-attr]
    hand.post.clear()
    hand.tell(0, Ack(THERE, HERE, 1))
    hand.step(0)
    assert [p.shard for p in hand.parcels()] == [1], "one was answered, so one may go"


def test_a_parcel_larger_than_the_budget_goes_alone() -> None:
    hand = one_way([1.0] * 4, [2.0] * 4, shards=2, neighbour_bytes=1)
    hand.step(0)
    assert [p.shard for p in hand.parcels()] == [0]


def test_by_default_two_models_may_be_on_their_way() -> None:
    hand = one_way([1.0] * 4, [2.0] * 4, shards=4)
    hand.step(0)
    assert len(hand.parcels()) == 4
    assert hand.cores[0].books.neighbour_bytes == hand.cores[0].books.inbox_bytes == 64
    pairwise = Hand([1.0] * 4, [2.0] * 4, shards=4, algorithm="adpsgd").cores[0]
    assert pairwise.books.inbox_bytes == 96, "what is owed, and two that ask"


def synchronous(limit: int) -> Hand:
    """Return a peer that keeps turns in order, so that each turn's mass waits apart."""
    return Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="sgp", inbox_bytes=limit)


def test_the_inbox_takes_what_fits_and_refuses_the_rest() -> None:
    hand = synchronous(16)
    outcomes = [type(hand.tell(0, parcel(sequence=turn, turn=turn, weight=0.01))[0]) for turn in range(4)]
    assert outcomes == [events.Booked, events.Booked, events.Refused, events.Refused]
    assert [type(message) for message in hand.mail()] == [Ack, Ack, Refusal, Refusal]
    hand.step(0)
    assert only(hand.tell(0, parcel(sequence=4, turn=4, weight=0.01)), events.Booked), "merged, so there is room"


def test_parcels_that_are_merged_together_share_their_bytes() -> None:
    hand = synchronous(8)
    for sequence in range(20):
        assert only(hand.tell(0, parcel(sequence=sequence, weight=0.01)), events.Booked)
    assert hand.cores[0].inbox.nbytes == 8
    assert hand.cores[0].inbox.weight(0) == pytest.approx(0.2)


def test_an_empty_inbox_takes_a_parcel_of_any_size() -> None:
    hand = synchronous(1)
    assert only(hand.tell(0, parcel(weight=0.01)), events.Booked)
    assert only(hand.tell(0, parcel(sequence=1, turn=1, weight=0.01)), events.Refused)


@pytest.mark.parametrize(("weight", "booked"), [(1.0, True), (2.0, True), (2.001, False), (1e6, False)])
def test_a_parcel_beyond_the_weight_cap_is_refused(weight: float, booked: bool) -> None:
    hand = one_way()
    before = hand.bits(0)
    effects = hand.tell(0, parcel(weight=weight))
    assert [type(effect) for effect in effects] == [events.Booked if booked else events.Refused, events.Send]
    assert hand.mail() == [(Ack if booked else Refusal)(HERE, THERE, 0)]
    assert hand.bits(0) == before


def test_what_waits_and_what_is_on_its_way_count_towards_the_cap() -> None:
    hand = one_way(1.0, 3.0, weight_cap=2.0, inbox_bytes=1000)
    hand.step(0)  # 0.5 held, 0.5 on its way, which may come back
    hand.tell(0, parcel(weight=0.75))
    assert only(hand.tell(0, parcel(sequence=1, weight=0.26)), events.Refused)
    assert only(hand.tell(0, parcel(sequence=2, weight=0.25)), events.Booked)


def test_the_cap_is_for_each_shard() -> None:
    hand = one_way([1.0, 1.0], [2.0, 2.0], shards=2, inbox_bytes=1000)
    assert only(hand.tell(0, parcel(weight=2.0)), events.Booked)
    assert only(hand.tell(0, parcel(sequence=1, weight=2.0, shard=1)), events.Booked)
    assert only(hand.tell(0, parcel(sequence=2, weight=0.1, shard=1)), events.Refused)


def test_a_push_is_cut_so_that_the_floor_is_kept() -> None:
    hand = one_way(fraction=0.9, weight_floor=0.25)
    hand.step(0)
    assert hand.parcels()[0].weight == pytest.approx(0.75)
    assert hand.cores[0].mass.weights == pytest.approx([0.25])


def test_a_push_that_the_floor_leaves_little_of_is_passed_over() -> None:
    hand = one_way(fraction=0.5, weight_floor=0.25)
    weights = []
    for number in range(4):
        hand.step(0)
        hand.tell(0, Ack(THERE, HERE, number))
        weights.append(hand.cores[0].mass.weights[0])
    # 1 -> 0.5 -> 0.25, and then nothing is left to give.
    assert weights == pytest.approx([0.5, 0.25, 0.25, 0.25])
    assert [type(message) for message in hand.mail()] == [Parcel, Parcel, Pass, Pass]


def test_the_floor_is_shared_evenly_among_the_neighbours_of_a_turn() -> None:
    hand = Hand(1.0, 2.0, 3.0, turns=[{0: {1: 0.6, 2: 0.3}}], algorithm="osgp", weight_floor=0.55)
    hand.step(0)
    assert [p.weight for p in hand.parcels()] == pytest.approx([0.3, 0.15])


def test_without_a_floor_the_schedule_is_followed_to_the_letter() -> None:
    hand = one_way(fraction=0.9, algorithm="sgp", weight_floor=0.0)
    weights = []
    for number in range(3):
        hand.step(0)
        hand.tell(0, Ack(THERE, HERE, number))
        weights.append(hand.cores[0].mass.weights[0])
    assert weights == pytest.approx([0.1, 0.01, 0.001])


def pushes(hand: Hand, steps: int) -> list[int]:
    """Step, refuse whatever is pushed, and return the turns in which something was."""
    turns = []
    for _ in range(steps):
        hand.post.clear()
        hand.step(0)
        for sent in hand.parcels():
            turns.append(sent.turn)
            hand.tell(0, Refusal(THERE, HERE, sent.sequence))
    return turns


def test_after_refusals_ever_more_turns_are_skipped() -> None:
    hand = one_way()
    # 1, 2, 4, 8, 16 turns are left out between pushes, and never more than 16.
    assert pushes(hand, 70) == [0, 2, 5, 10, 19, 36, 53]
    hand.step(0)
    assert hand.total()[0] == pytest.approx(2.0)


def test_a_skipped_turn_is_told_to_a_neighbour_that_may_wait_for_it() -> None:
    hand = one_way()
    pushes(hand, 2)
    assert hand.mail() == [Pass(HERE, THERE, 1, 0)]


def test_an_acceptance_ends_the_backing_off() -> None:
    hand = one_way()
    assert pushes(hand, 5) == [0, 2]
    hand.step(0)
    (sent,) = hand.parcels()
    assert sent.turn == 5
    hand.tell(0, Ack(THERE, HERE, sent.sequence))
    assert pushes(hand, 4) == [6, 8], "and the next refusal costs one turn again"


def test_backing_off_is_for_one_shard_and_one_neighbour() -> None:
    hand = Hand([1.0, 1.0], [2.0, 2.0], [3.0, 3.0], turns=[{0: {1: 0.2, 2: 0.2}}], shards=2, algorithm="osgp")
    hand.step(0)
    for rank, sequence, answer in ((1, 0, Refusal), (1, 1, Ack), (2, 0, Ack), (2, 1, Ack)):
        hand.tell(0, answer(Address(rank, 0), HERE, sequence))
    hand.post.clear()
    hand.step(0)
    assert [(p.destination.rank, p.shard) for p in hand.parcels()] == [(2, 0), (1, 1), (2, 1)]


def test_one_who_never_waits_for_others_is_told_of_no_passes() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="adpsgd")
    hand.step(0), hand.step(0)
    assert [type(message) for message in hand.mail()] == [Parcel]
