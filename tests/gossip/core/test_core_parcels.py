"""A parcel from push to merge: the arithmetic, held until it is answered, sent again, taken back, never doubled."""

from __future__ import annotations

import numpy as np
import pytest
from hand_swarm import CIRCLE, ONE_WAY, PAIR, Hand, only, parcel

from gossip import events
from gossip.settings import Settings
from gossip.wire.messages import Ack, Address, Hello, Parcel, Refusal

LEAST = Settings().resend_floor


def test_a_push_halves_the_weight_and_leaves_the_values() -> None:
    hand = Hand([1.0, 2.0], [3.0, 6.0], turns=[ONE_WAY], algorithm="osgp")
    effects = hand.step(0)
    assert [type(effect) for effect in effects] == [events.Send, events.Proceed]
    assert effects[1] == events.Proceed(1)
    (sent,) = hand.parcels()
    assert (sent.origin, sent.destination, sent.sequence, sent.turn, sent.weight) == ((0, 0), (1, 0), 0, 0, 0.5)
    assert sent.values.tolist() == [1.0, 2.0]
    assert hand.cores[0].mass.values.tolist() == [1.0, 2.0]
    assert hand.cores[0].mass.weights == [0.5]


def test_a_merge_is_the_weighted_mean() -> None:
    hand = Hand([1.0, 2.0], [3.0, 6.0], turns=[ONE_WAY], algorithm="osgp")
    hand.step(0)
    assert [type(effect) for effect in hand.deliver()] == [events.Booked, events.Send]
    assert hand.cores[1].mass.weights == [1.0], "while the trainer runs the values are its own"
    hand.step(1)
    assert hand.cores[1].mass.weights == [1.5]
    # (3 * 1 + 1 * 0.5) / 1.5 and (6 * 1 + 2 * 0.5) / 1.5
    assert hand.cores[1].mass.values == pytest.approx([3.5 / 1.5, 7 / 1.5], rel=1e-15)


def test_two_turns_of_two_peers_by_hand() -> None:
    hand = Hand(0.0, 1.0)
    for _ in range(2):
        hand.round()
    assert [core.mass.weights for core in hand.cores] == [[1.0], [1.0]]
    assert [core.mass.values[0] for core in hand.cores] == [0.5, 0.5]


def test_a_circle_of_three_is_the_product_of_its_matrices() -> None:
    hand = Hand(1.0, 2.0, 6.0, turns=[CIRCLE])
    mixing = np.array([[0.5, 0, 0.5], [0.5, 0.5, 0], [0, 0.5, 0.5]])
    expected = np.array([1.0, 2.0, 6.0])
    for turn in range(1, 6):
        hand.round()
        expected = mixing @ expected
        assert [core.mass.values[0] for core in hand.cores] == pytest.approx(expected, rel=1e-14)
        assert [core.turns for core in hand.cores] == [[turn]] * 3


def test_only_the_share_of_the_shards_is_pushed_and_they_take_turns() -> None:
    hand = Hand([1.0] * 4, [2.0] * 4, turns=[ONE_WAY], algorithm="osgp", shards=4, share=0.5)
    pushed = []
    for _ in range(4):
        hand.step(0)
        pushed.append([(p.shard, p.turn) for p in hand.parcels()])
        hand.settle()
    assert pushed == [[(0, 0), (1, 0)], [(2, 0), (3, 0)], [(0, 1), (1, 1)], [(2, 1), (3, 1)]]


def test_a_parcel_of_a_later_turn_waits_for_that_turn_when_synchronous() -> None:
    hand = Hand(1.0, 3.0, weight_floor=0.0)
    hand.tell(0, parcel(turn=1, value=9.0))
    hand.step(0)
    assert hand.cores[0].inbox.weight(0) == 0.25, "of turn 1, and this was turn 0"
    hand.tell(0, Ack(Address(1, 0), Address(0, 0), 0))
    hand.now = 1.0
    hand.step(0)
    assert hand.cores[0].inbox.weight(0) == 0.0
    assert hand.cores[0].mass.weights == [0.5], "half of 0.5 went first, then 0.25 came"


def held(hand: Hand) -> list[int]:
    return [entry.parcel.sequence for entry in hand.cores[0].outbox]


def test_a_parcel_is_held_until_it_is_acknowledged() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp")
    hand.step(0)
    hand.deliver(Parcel)
    assert held(hand) == [0]
    (released,) = hand.deliver(Ack)
    assert isinstance(released, events.Released)
    assert released.parcel.sequence == 0
    assert held(hand) == []
    assert hand.cores[0].deadline is None


def test_nothing_is_due_when_nothing_is_pending() -> None:
    hand = Hand(1.0, 3.0)
    assert hand.cores[0].deadline is None
    hand.step(0), hand.step(1)
    assert hand.cores[0].deadline == 0.5, "the first resend"
    hand.settle()
    assert [core.deadline for core in hand.cores] == [None, None]


def test_an_unanswered_parcel_is_sent_again_at_growing_intervals() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp", resend_first=0.5, resend_ceiling=3.0)
    hand.step(0)
    (first,) = [send.frames for send in hand.post]
    times = []
    for _ in range(5):
        hand.post.clear()
        due = hand.cores[0].deadline
        assert due is not None
        assert hand.tick(0, due - 1e-9) == [], "not before its time"
        (again,) = only(hand.tick(0, due), events.Send)
        assert [bytes(frame) for frame in again.frames] == [bytes(frame) for frame in first]
        times.append(due)
    assert np.diff([0.0, *times]).tolist() == pytest.approx([0.5, 1.0, 2.0, 3.0, 3.0])
    assert hand.cores[0].mass.weights == [0.5], "sent again is not given again"


def test_one_that_never_answers_is_reported_now_and_then() -> None:
    hand = Hand(0.0, 4.0, turns=[ONE_WAY], algorithm="osgp")
    hand.step(0)
    told = []
    for attempt in range(2, 13):
        due = hand.cores[0].deadline
        assert due is not None
        told += [(attempt, one.to.rank) for one in only(hand.tick(0, due), events.Unanswered)]
    assert told == [(4, 1), (8, 1), (12, 1)]


def test_one_that_does_not_hear_our_answers_is_reported_now_and_then() -> None:
    hand = Hand(0.0, 4.0, turns=[ONE_WAY], algorithm="osgp")
    hand.step(0)
    (send,) = hand.post
    told = [only(hand.feed(1, events.Received(send.frames)), events.Unanswered) for _ in range(10)]
    assert [index for index, one in enumerate(told) if one] == [4, 8], "the first time it was new"
    assert told[4] == [events.Unanswered(Address(0, 0))]


def test_the_resend_interval_is_learned_from_the_round_trip() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp", resend_first=1.0)
    hand.step(0)
    hand.now = 0.1
    hand.settle()
    hand.step(0)
    # The first observation counts whole: mean 0.1 and deviation 0.05, so 0.1 + 4 * 0.05.
    assert hand.cores[0].deadline == pytest.approx(0.1 + 0.3)


def test_of_a_parcel_that_was_sent_twice_no_round_trip_is_learned() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp", resend_first=1.0, weight_floor=0.0)
    hand.step(0)
    hand.tick(0, 1.0)
    hand.now = 1.01
    hand.settle()
    hand.step(0)
    assert hand.cores[0].deadline == pytest.approx(1.01 + 2.0), "as long as the one before took, and no round trip"
    hand.now = 1.51
    hand.settle()
    hand.step(0)
    assert hand.cores[0].deadline == pytest.approx(1.51 + 0.5 + 4 * 0.25), "learned at the first attempt"


def test_no_parcel_is_sent_again_at_once_however_fast_the_network() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp")
    hand.step(0)
    hand.settle()
    hand.step(0)
    assert hand.cores[0].deadline == LEAST


def test_an_answer_puts_off_what_was_sent_after_it_and_not_what_was_sent_before() -> None:
    hand = Hand([1.0] * 3, [3.0] * 3, turns=[ONE_WAY], algorithm="osgp", shards=3, resend_first=1.0)
    hand.step(0)
    hand.now = 0.9
    hand.tell(0, Ack(Address(1, 0), Address(0, 0), 1))
    due = {entry.parcel.sequence: entry.resend_at for entry in hand.cores[0].outbox}
    assert due[0] == 1.0, "were it not lost, it would have been answered first"
    assert due[2] > 1.5, "it queued behind the one that was answered just now"


def test_with_a_sink_effects_are_carried_out_as_they_arise_and_in_the_same_order() -> None:
    listed, sunk = (Hand([1.0] * 4, [3.0] * 4, turns=[ONE_WAY], shards=4) for _ in range(2))
    effects: list[events.Effect] = []
    weights: list[float] = []

    def sink(effect: events.Effect) -> None:
        effects.append(effect)
        weights.append(sunk.cores[0].mass.weights[3])

    sunk.cores[0].outlet.sink = sink
    assert sunk.step(0) == []
    assert [type(effect) for effect in effects] == [type(effect) for effect in listed.step(0)]
    assert weights[0] == 1.0, "the last shard had not been pushed when the first parcel left"
    assert weights[-1] == 0.5


def test_shards_that_take_turns_one_at_a_time_end_as_all_at_once() -> None:
    hand = Hand([1.0] * 4, [3.0] * 4, turns=[PAIR], shards=4)
    for rank in (0, 1):
        assert len(only(hand.feed(rank, events.StepFinished()), events.Send)) == 1
    for taken in (2, 3, 4):
        for rank, core in enumerate(hand.cores):
            assert core.deadline == hand.now, "the rest is due at once"
            assert not only(hand.tick(rank, hand.now), events.Proceed)
            assert core.turns == [1] * taken + [0] * (4 - taken)
    assert len(only(hand.settle(), events.Proceed)) == 2
    assert [core.mass.values.tolist() for core in hand.cores] == [[2.0] * 4] * 2


def test_nobody_proceeds_before_every_shard_has_taken_its_turn() -> None:
    hand = Hand([1.0] * 3, [3.0] * 3, turns=[ONE_WAY], algorithm="osgp", shards=3)
    assert [type(effect) for effect in hand.feed(0, events.StepFinished())] == [events.Send]
    assert not only(hand.settle(), events.Proceed), "what arrives in between ends no step"
    hand.tick(0, hand.now)
    assert [type(effect) for effect in hand.tick(0, hand.now)] == [events.Send, events.Proceed]


@pytest.mark.parametrize(
    "news",
    [
        events.PeerDied(Address(1, 0)),
        events.PeerAlive(Address(1, 1)),
        Refusal(Address(1, 0), Address(0, 0), 0),
        Hello(Address(1, 1), Address(0, 0)),
    ],
    ids=repr,
)
def test_a_parcel_that_will_never_be_booked_comes_back_whole(news: object) -> None:
    hand = Hand([1.0, 2.0], [3.0, 4.0], turns=[ONE_WAY, {}], algorithm="osgp")
    hand.step(0)
    hand.lose()
    hand.cores[0].mass.values[:] += 1.0  # the trainer goes on
    effects = hand.tell(0, news) if isinstance(news, Refusal | Hello) else hand.feed(0, news)
    (back,) = only(effects, events.TakenBack)
    assert back.parcel.values.tolist() == [1.0, 2.0]
    assert held(hand) == []
    assert hand.total() == (2.0, pytest.approx(7.0 + 0.5 * 5.0 + 0.5 * 3.0))
    hand.step(0)
    assert hand.cores[0].mass.weights[0] + hand.cores[0].outbox.weight(0) == 1.0
    assert hand.cores[0].mass.values.tolist() == [1.5, 2.5], "half of 2 and 3, half of 1 and 2"


def test_what_goes_to_others_stays_where_it_is_when_one_dies() -> None:
    hand = Hand(1.0, 2.0, 3.0, turns=[{0: {1: 0.25, 2: 0.25}}], algorithm="osgp")
    hand.step(0)
    (back,) = only(hand.feed(0, events.PeerDied(Address(1, 0))), events.TakenBack)
    assert back.parcel.destination == Address(1, 0)
    assert [entry.parcel.destination.rank for entry in hand.cores[0].outbox] == [2]


def test_mass_is_conserved_when_every_parcel_is_lost_and_doubled() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR], algorithm="osgp")
    for turn in range(20):
        hand.now = 10.0 * turn
        hand.step(0), hand.step(1)
        hand.lose((Parcel, Ack) if turn % 2 else Ack)
        for rank in (0, 1):
            hand.feed(rank, events.Tick())
        hand.post += hand.post
        hand.settle()
        hand.now += 5.0
        for rank in (0, 1):
            hand.feed(rank, events.Tick())
        hand.settle()
        assert hand.total() == pytest.approx((2.0, 4.0), rel=1e-12)
    assert hand.cores[0].mass.values[0] == pytest.approx(hand.cores[1].mass.values[0], abs=0.1)
