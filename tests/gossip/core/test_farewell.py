"""Leaving, step by step: who is told, who inherits, and what is done when they refuse or die."""

from __future__ import annotations

import pytest
from hand_swarm import CIRCLE, PAIR, Hand, only

from gossip import events
from gossip.core.farewell import Farewell
from gossip.wire.messages import Ack, Address, Bye, Parcel, Refusal, Settled

ONE, TWO, THREE = Address(1, 0), Address(2, 0), Address(3, 0)


def test_everybody_is_told_at_once_and_again_until_it_answers() -> None:
    farewell = Farewell([ONE, TWO], shards=1, every=0.5)
    assert farewell.to_tell(10.0) == [ONE, TWO]
    assert farewell.to_tell(10.4) == []
    assert farewell.deadline == 10.5
    farewell.settle(ONE)
    assert not farewell.settled
    assert farewell.to_tell(10.5) == [TWO]
    farewell.settle(TWO)
    farewell.settle(TWO)  # said twice
    assert farewell.settled
    assert farewell.deadline is None


def test_who_is_gone_itself_is_waited_for_no_more() -> None:
    farewell = Farewell([ONE, TWO], shards=1, every=0.5)
    farewell.settle(Address(1, 7))  # another life of the same rank has not settled anything of this one
    farewell.settle(TWO)
    assert not farewell.settled
    farewell.forget(1)
    assert farewell.settled


def test_heirs_take_turns_and_whoever_refused_gets_a_pause() -> None:
    """Each offer is a model on its way: to those who all refused, nothing is offered again before a pause."""
    farewell = Farewell([], shards=2, every=0.5)
    stay = [ONE, TWO, THREE]
    asked = []
    for _ in stay:
        asked.append(farewell.heir(0, stay, 1.0))
        farewell.refused(0)
    assert set(asked) == set(stay)
    assert farewell.deadline is None
    assert farewell.heir(0, stay, 1.0) is None
    assert farewell.deadline == 1.5
    assert farewell.heir(1, stay, 1.0) is not None, "another shard has its own heirs"
    assert farewell.heir(0, stay, 1.5) is not None


def test_a_moment_that_is_past_is_no_deadline() -> None:
    """Whatever became of the shard meanwhile: the core would be called again at once, for ever."""
    farewell = Farewell([], shards=1, every=0.5)
    farewell.heir(0, [ONE], 1.0)
    farewell.refused(0)
    assert farewell.heir(0, [ONE], 1.0) is None
    farewell.to_tell(1.5)
    assert farewell.deadline is None


def test_shards_begin_with_different_heirs() -> None:
    farewell = Farewell([], shards=3, every=0.5)
    assert len({farewell.heir(shard, [ONE, TWO, THREE], 0.0) for shard in range(3)}) == 3


# In the core


def test_a_leaver_hands_everything_over_and_is_gone() -> None:
    hand = Hand([1.0, 2.0], [3.0, 4.0], [5.0, 6.0], turns=[CIRCLE], shards=2)
    before = hand.total()
    hand.feed(0, events.Leave())
    assert [message.destination.rank for message in hand.mail() if isinstance(message, Bye)] == [1, 2]
    assert hand.parcels() == [], "nothing is handed over to one that may still send us something"
    effects = hand.settle()
    assert only(effects, events.Left) == [events.Left(0.0)]
    assert hand.cores[0].mass.weights == [0.0, 0.0]
    assert hand.total() == pytest.approx(before)
    assert all(0 not in hand.cores[rank].view.members for rank in (1, 2))
    assert hand.cores[0].deadline is None


def test_a_leaver_that_waited_for_somebody_waits_no_more() -> None:
    """Its wait would end by `Proceed`, which never comes; the deadline of it must not stay in the past."""
    hand = Hand(1.0, 3.0, 5.0, turns=[CIRCLE])
    hand.step(0)
    assert hand.cores[0].deadline is not None
    hand.feed(0, events.Leave())
    hand.lose()
    ticks = 0
    while hand.now < 15.0:  # longer than the longest wait
        deadline = hand.cores[0].deadline
        assert deadline is not None
        hand.tick(0, max(hand.now, deadline))
        hand.lose()
        ticks += 1
        assert ticks < 200, f"time stands still at {hand.now}"


def test_a_leaver_waits_for_the_answers_to_what_was_sent_to_it() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR], algorithm="osgp")
    hand.step(1)
    hand.deliver(Parcel)  # 0 has booked it; 1 does not know
    hand.lose(Ack)
    before = hand.total()[0] - sum(entry.parcel.weight for entry in hand.cores[1].outbox)
    hand.feed(0, events.Leave())
    hand.deliver(Bye)
    assert not [message for message in hand.mail() if isinstance(message, Settled)]
    hand.tick(1, 5.0)  # it sends the parcel again
    effects = hand.settle()
    assert only(effects, events.Left) == [events.Left(0.0)]
    hand.feed(1, events.PeerDied(Address(0, 0)))
    assert hand.total()[0] == pytest.approx(before), "nothing is taken back that was booked and handed on"


def test_one_that_leaves_takes_nothing_in() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR], algorithm="osgp")
    hand.step(1)  # on its way when it hears of the leave
    hand.feed(0, events.Leave())
    effects = hand.deliver(Parcel)
    assert only(effects, events.Refused)
    assert any(isinstance(message, Refusal) for message in hand.mail())
    hand.settle()
    assert hand.total()[0] == pytest.approx(2.0)


def test_an_heir_that_is_full_is_not_the_only_one() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[CIRCLE], algorithm="osgp", weight_cap=1.8)
    hand.cores[2].mass.weights = [2.6]
    before = hand.total()
    hand.feed(0, events.Leave())
    effects = hand.settle()
    for _ in range(8):
        if only(effects, events.Left):
            break
        hand.tick(0, hand.now + 0.5)
        effects += hand.settle()
    assert only(effects, events.Left) == [events.Left(0.0)]
    assert hand.cores[2].mass.weights == [2.6]
    assert hand.total() == pytest.approx(before)


def test_who_is_alone_leaves_with_what_it_has() -> None:
    hand = Hand(1.0)
    assert only(hand.feed(0, events.Leave()), events.Left) == [events.Left(1.0)]


def test_at_once_is_at_once() -> None:
    hand = Hand(1.0, 3.0)
    effects = hand.feed(0, events.Leave(at_once=True))
    assert only(effects, events.Left) == [events.Left(1.0)]


def test_a_bye_that_comes_again_is_answered_again() -> None:
    hand = Hand(1.0, 3.0)
    for _ in range(2):
        hand.tell(0, Bye(ONE, Address(0, 0)))
        assert [type(message) for message in hand.mail()] == [Settled]
        hand.lose()
    assert hand.cores[0].view.members == {0: 0}


def test_who_left_does_not_come_back_by_an_old_letter() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[CIRCLE], algorithm="osgp")
    hand.tell(0, Bye(ONE, Address(0, 0)))
    hand.tell(0, Ack(ONE, Address(0, 0), 0))
    assert hand.cores[0].view.members == {0: 0, 2: 0}


def test_what_is_not_finite_is_written_off_and_said_to_be() -> None:
    hand = Hand(float("nan"), 3.0, 5.0, turns=[CIRCLE])
    hand.feed(0, events.Leave())
    (left,) = only(hand.settle(), events.Left)
    assert left.written_off == 1
    assert [core.mass.weights for core in hand.cores[1:]] == [[1.0], [1.0]]


def test_who_has_to_go_before_all_have_settled_doubles_nothing() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[CIRCLE], algorithm="osgp")
    hand.step(0)
    hand.deliver(Parcel)  # 1 has booked half of 0's mass
    hand.lose(Ack)  # 0 does not know
    hand.feed(1, events.Leave())
    (bye,) = [send for send in hand.post if isinstance(hand.read(send), Bye) and send.to.rank == 2]
    hand.post = [bye]
    hand.deliver()  # 2 hears that 1 leaves, 0 does not
    hand.deliver(Settled)
    assert hand.parcels() == [], "2 may not have it yet: 0 may take back what is in it"
    (left,) = only(hand.feed(1, events.Leave(at_once=True)), events.Left)  # its time is over
    hand.lose()
    hand.feed(0, events.PeerDied(Address(1, 0)))
    held = [core.mass.weights[0] + core.inbox.weight(0) for core in (hand.cores[0], hand.cores[2])]
    assert held == [1.0, 1.0]
    assert left.written_off == 1.5, "with half of what 0 has back, as with any that dies"


def test_who_goes_without_handing_over_makes_nobody_keep_more() -> None:
    """Or the floor would rise with each that is interrupted, until nobody has enough to push."""
    hand = Hand(*[1.0] * 8, turns=[{0: {1: 0.5}, 1: {0: 0.5}}], algorithm="gossip-push")
    for rank in range(2, 8):
        for other in range(8):
            if other != rank:
                hand.tell(other, Bye(Address(rank, 0), Address(other, 0), hands_over=False))
    hand.lose()
    hand.step(0)
    (parcel,) = hand.parcels()
    assert parcel.weight == 0.5
