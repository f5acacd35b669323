"""What a step waits for: the turn's parcels, within reason, and never for the slow or the dead."""

from __future__ import annotations

import pytest
from hand_swarm import CIRCLE, ONE_WAY, PAIR, Hand, only, parcel

from gossip import events
from gossip.wire.messages import Ack, Address, Parcel, Pass

HERE, THERE = Address(0, 0), Address(1, 0)


def proceeds(effects: list) -> bool:
    return bool(only(effects, events.Proceed))


def test_sgp_waits_for_the_parcel_of_the_turn() -> None:
    hand = Hand(1.0, 3.0)
    assert not proceeds(hand.step(0))
    effects = hand.tell(0, parcel(value=3.0, weight=0.5))
    assert [type(effect) for effect in effects] == [events.Booked, events.Send, events.Proceed]
    assert hand.cores[0].mass.weights == [1.0]
    assert hand.cores[0].mass.values.tolist() == [2.0], "merged before the trainer goes on"


def test_sgp_does_not_wait_for_what_is_there() -> None:
    hand = Hand(1.0, 3.0)
    hand.tell(0, parcel(value=3.0, weight=0.5))
    assert proceeds(hand.step(0))
    assert hand.cores[0].mass.values.tolist() == [2.0], "pushed half of 1, then merged"


def test_sgp_waits_for_all_neighbours_of_the_turn() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[{1: {0: 0.5}, 2: {0: 0.5}}])
    assert not proceeds(hand.step(0))
    assert not proceeds(hand.tell(0, parcel(origin=1)))
    assert proceeds(hand.tell(0, parcel(origin=2)))


def test_sgp_waits_for_nobody_who_does_not_send_at_the_turn() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY])
    assert proceeds(hand.step(0))


def test_sgp_proceeds_at_the_deadline() -> None:
    hand = Hand(1.0, 3.0, turns=[{1: {0: 0.5}}], wait_ceiling=7.0)
    assert not proceeds(hand.step(0))
    assert hand.cores[0].deadline == 7.0
    assert not proceeds(hand.tick(0, 6.999))
    assert hand.tick(0, 7.0) == [events.Proceed(1)]
    assert hand.cores[0].deadline is None


def test_the_deadline_is_the_earlier_of_a_resend_and_the_end_of_a_wait() -> None:
    hand = Hand(1.0, 3.0, wait_ceiling=7.0, resend_first=2.0)
    hand.step(0)
    assert hand.cores[0].deadline == 2.0
    hand.tell(0, Ack(THERE, HERE, 0))
    assert hand.cores[0].deadline == 7.0


def test_patience_is_counted_in_our_own_steps() -> None:
    hand = Hand(1.0, 3.0, turns=[{1: {0: 0.5}}], wait_ceiling=100.0, patience=3.0)
    hand.step(0)
    hand.tell(0, parcel(weight=0.01))
    hand.now = 2.0
    hand.step(0)
    assert hand.cores[0].deadline is not None
    # At most three steps of 2 s, and at least half of that: the one parcel so far came at once.
    assert hand.cores[0].deadline == pytest.approx(2.0 + 3.0)


def test_a_parcel_that_missed_its_deadline_still_counts() -> None:
    hand = Hand(1.0, 3.0, turns=[{1: {0: 0.5}}])
    hand.step(0)
    hand.tick(0, 10.0)
    assert only(hand.tell(0, parcel(weight=0.5)), events.Booked)
    hand.step(0)
    assert hand.cores[0].mass.weights == [1.5]


def late(hand: Hand, rounds: int, delay: float) -> list[float]:
    """Take steps of a second; what 1 says comes so long after our push of the turn. Return how long we waited."""
    waits = []
    coming: list[tuple[float, int]] = []

    def until(when: float) -> bool:
        """Let arrive what comes by then; return whether the core went on."""
        went_on = False
        while coming and coming[0][0] <= when:
            hand.now, turn = coming.pop(0)
            went_on |= proceeds(hand.tell(0, Pass(THERE, HERE, turn, 0)))
        hand.now = when
        return went_on

    for _ in range(rounds):
        until(hand.now + 1.0)
        began = hand.now
        coming.append((began + delay, hand.cores[0].turns[0]))
        going = proceeds(hand.step(0))
        while not going:
            due = hand.cores[0].deadline
            assert due is not None
            first = min(due, coming[0][0])
            going = until(first) or proceeds(hand.tick(0, first))
        waits.append(hand.now - began)
    return waits


def test_nobody_waits_for_a_neighbour_that_is_regularly_late() -> None:
    hand = Hand(1.0, 3.0, turns=[{1: {0: 0.5}}], patience=2.0)
    waits = late(hand, 30, delay=5.0)
    assert waits[0] == 5.0, "at first nothing is known, and the ceiling is 10"
    assert waits[-10:] == [0.0] * 10


def test_a_punctual_neighbour_is_waited_for() -> None:
    hand = Hand(1.0, 3.0, turns=[{1: {0: 0.5}}], patience=2.0)
    assert late(hand, 30, delay=0.5) == pytest.approx([0.5] * 30)


def test_one_that_is_on_time_again_is_waited_for_again() -> None:
    hand = Hand(1.0, 3.0, turns=[{1: {0: 0.5}}], patience=2.0)
    late(hand, 30, delay=5.0)
    assert late(hand, 60, delay=0.5)[-10:] == pytest.approx([0.5] * 10)


def test_one_that_never_sends_is_not_waited_for_any_more() -> None:
    hand = Hand(1.0, 3.0, turns=[{1: {0: 0.5}}], patience=2.0)
    waits = []
    for _ in range(20):
        hand.now += 1.0
        began = hand.now
        if not proceeds(hand.step(0)):
            due = hand.cores[0].deadline
            assert due is not None
            assert proceeds(hand.tick(0, due))
        waits.append(hand.now - began)
    assert waits[0] == 10.0
    assert waits[2:] == [0.0] * 18


def test_osgp_waits_only_for_the_turn_tau_before() -> None:
    hand = Hand(1.0, 3.0, algorithm="osgp:tau=2,wait=0", turns=[{1: {0: 0.5}}])
    assert proceeds(hand.step(0))
    hand.now = 1.0
    assert proceeds(hand.step(0))
    hand.now = 2.0
    assert not proceeds(hand.step(0)), "turn 2, and nothing of turn 0 is there"
    assert proceeds(hand.tell(0, parcel(turn=0)))
    hand.now = 3.0
    assert not proceeds(hand.step(0)), "turn 3, and nothing of turn 1"
    assert not proceeds(hand.tell(0, parcel(sequence=1, turn=0))), "turn 0 is not turn 1"
    assert proceeds(hand.tell(0, parcel(sequence=2, turn=1)))


def test_osgp_with_tau_0_is_sgp() -> None:
    hand = Hand(1.0, 3.0, algorithm="osgp:tau=0")
    assert not proceeds(hand.step(0))


def test_adpsgd_never_waits() -> None:
    hand = Hand(1.0, 3.0, algorithm="adpsgd", turns=[PAIR])
    assert proceeds(hand.step(0))
    assert proceeds(hand.step(0))


def test_a_pass_ends_a_wait() -> None:
    hand = Hand(1.0, 3.0, turns=[{}, {1: {0: 0.5}}])
    hand.step(0)
    hand.now = 1.0
    assert not proceeds(hand.step(0))
    assert not proceeds(hand.tell(0, Pass(THERE, HERE, 0, 0))), "of another turn"
    assert hand.tell(0, Pass(THERE, HERE, 1, 0)) == [events.Proceed(2)]


def test_a_pass_of_another_shard_ends_no_wait() -> None:
    hand = Hand([1.0, 1.0], [3.0, 3.0], shards=2, turns=[{1: {0: 0.5}}])
    hand.step(0)
    assert not proceeds(hand.tell(0, Pass(THERE, HERE, 0, 0)))
    assert not proceeds(hand.tell(0, Pass(THERE, HERE, 0, 0)))
    assert proceeds(hand.tell(0, Pass(THERE, HERE, 0, 1)))


def test_a_refused_parcel_ends_a_wait_too() -> None:
    hand = Hand(1.0, 3.0, turns=[{1: {0: 0.5}}])
    hand.step(0)
    effects = hand.tell(0, parcel(weight=5.0))
    assert [type(effect) for effect in effects] == [events.Refused, events.Send, events.Proceed]


def test_the_wait_for_one_that_died_is_over_and_the_others_are_still_waited_for() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[{1: {0: 0.5}, 2: {0: 0.5}}])
    hand.step(0)
    assert not proceeds(hand.feed(0, events.PeerDied(THERE)))
    assert proceeds(hand.tell(0, parcel(origin=2)))


def test_nobody_waits_for_somebody_who_is_fenced() -> None:
    hand = Hand(1.0, 3.0, turns=[{1: {0: 0.5}}])
    hand.feed(0, events.PeerDied(THERE))
    hand.feed(0, events.PeerAlive(THERE))
    assert proceeds(hand.step(0))


@pytest.mark.parametrize(("heard", "turn"), [(2, 0), (3, 3), (10, 10)])
def test_a_shard_far_behind_skips_to_where_the_others_are(heard: int, turn: int) -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY])
    hand.tell(0, Pass(THERE, HERE, heard, 0))
    hand.step(0)
    assert hand.parcels()[0].turn == turn
    assert hand.cores[0].turns == [turn + 1]


@pytest.mark.parametrize(("algorithm", "turn"), [("gossip-push", 0), ("adpsgd", 50), ("easgd:alpha=0.5", 50)])
def test_where_nobody_waits_nobody_skips_but_pairs_which_have_to_find_together(algorithm: str, turn: int) -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm=algorithm)
    hand.tell(0, parcel(turn=50))
    hand.step(0)
    assert hand.parcels()[0].turn == turn


def test_a_lie_does_not_carry_pairs_out_of_the_range_of_turns() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="adpsgd")
    hand.tell(0, parcel(turn=10**9))
    hand.step(0)
    assert hand.parcels()[0].turn == 0
    assert hand.cores[0].mass.weights == [0.625], "what it brought is mass all the same: half of 1.25 is left"


@pytest.mark.parametrize(("ahead", "taken"), [(1, 1), (3, 3), (4, 3), (5, 3), (6, 6), (50, 48)])
def test_who_is_more_than_a_period_behind_skips_whole_ones(ahead: int, taken: int) -> None:
    """So that it comes to all its neighbours, not only to those turns in which faster ones push to it."""
    hand = Hand(1.0, 3.0, turns=[ONE_WAY] * 3, algorithm="adpsgd")
    hand.tell(0, parcel(turn=ahead))
    hand.step(0)
    assert hand.parcels()[0].turn == taken


def test_three_in_a_circle_keep_step_whatever_the_order() -> None:
    hand = Hand(1.0, 2.0, 6.0, turns=[CIRCLE])
    for turn in range(6):
        hand.now += 1.0
        effects = [effect for offset in range(3) for effect in hand.step((turn + offset) % 3)]
        hand.post.reverse()
        effects += hand.settle()
        assert len(only(effects, events.Proceed)) == 3
    assert [core.step for core in hand.cores] == [6, 6, 6]
    assert [core.mass.values[0] for core in hand.cores] == pytest.approx([3.0] * 3, abs=0.2)
    assert hand.total() == pytest.approx((3.0, 9.0))
    assert not [message for message in hand.mail() if isinstance(message, Parcel)]


def test_a_pass_is_sent_behind_the_parcel_of_the_turn_before() -> None:
    """A pass that overtook a parcel would end the wait for it: the receiver takes turn 0 for over."""
    hand = Hand(1.0, 3.0, turns=[PAIR])
    hand.step(0)
    hand.step(1)
    assert proceeds(hand.deliver(Parcel)), "rank 1 has what rank 0 sent, and goes on"
    hand.step(1)
    sent = [(type(hand.read(one)), one.ordered) for one in hand.post if hand.read(one).origin.rank == 1]
    assert sent == [(Parcel, True), (Ack, False), (Pass, True)]
