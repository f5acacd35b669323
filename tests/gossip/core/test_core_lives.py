"""Incarnations: fences, reincarnation, and whose parcels come back when somebody is no longer who it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_swarm import CIRCLE, ONE_WAY, PAIR, Hand, only, parcel

from gossip import events
from gossip.errors import Reason
from gossip.wire.messages import Ack, Address, Fence, Hello, Message, Parcel, Pass, Refusal

HERE, THERE, REBORN = Address(0, 0), Address(1, 0), Address(1, 1)


def test_a_fence_ends_a_life_and_starts_another() -> None:
    hand = Hand([1.0, 2.0], [3.0, 4.0], turns=[PAIR], algorithm="osgp", shards=2)
    hand.step(0)
    hand.tell(0, parcel(weight=0.25))
    effects = hand.tell(0, Fence(THERE, HERE))
    core = hand.cores[0]
    assert effects[0] == events.Reincarnated(Address(0, 1), pytest.approx(0.5 + 0.5 + 0.25))
    assert hand.read(effects[1]) == Hello(Address(0, 1), THERE)  # type: ignore[arg-type]
    assert core.me == Address(0, 1)
    assert core.view.members == {0: 1, 1: 0}
    assert core.mass.weights == [1.0, 1.0]
    assert core.mass.values.tolist() == [1.0, 2.0], "its z it keeps"
    assert list(core.inbox) == []
    assert len(core.outbox) == 0
    assert core.deadline is None


def test_a_fence_for_a_life_we_never_had_is_rejected() -> None:
    hand = Hand(1.0, 3.0)
    (effect,) = hand.tell(0, Fence(THERE, Address(0, 4)))
    assert isinstance(effect, events.RejectedFrame)
    assert hand.cores[0].me == HERE


def test_the_next_life_is_above_all_that_were_declared_dead() -> None:
    hand = Hand(1.0, 3.0)
    hand.feed(0, events.PeerDied(Address(0, 4)))
    assert hand.cores[0].me == Address(0, 5)


def test_a_fence_that_comes_again_ends_no_second_life() -> None:
    hand = Hand(1.0, 3.0)
    hand.tell(0, Fence(THERE, HERE))
    hand.cores[0].mass.weights = [0.5]
    (hello,) = hand.tell(0, Fence(THERE, HERE))
    assert hand.read(hello) == Hello(Address(0, 1), THERE), "the other has not heard yet"  # type: ignore[arg-type]
    assert hand.cores[0].me == Address(0, 1)
    assert hand.cores[0].mass.weights == [0.5]


def test_the_news_of_our_own_death_ends_our_life() -> None:
    hand = Hand(1.0, 3.0)
    assert hand.feed(0, events.PeerDied(HERE)) == [events.Reincarnated(Address(0, 1), 1.0)]
    assert hand.feed(0, events.PeerDied(HERE)) == [], "old news"


def test_in_a_new_life_sequences_start_again_and_are_booked() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp")
    hand.step(0)
    hand.settle()
    hand.tell(0, Fence(THERE, HERE))
    hand.settle()
    assert hand.cores[1].view.members == {0: 1, 1: 0}
    hand.step(0)
    (sent,) = hand.parcels()
    assert (sent.origin, sent.sequence) == (Address(0, 1), 0)
    assert only(hand.deliver(Parcel), events.Booked), "sequence 0 of the former life was another parcel"


def test_a_parcel_to_a_former_life_comes_back_by_a_hello() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[CIRCLE], algorithm="osgp")
    hand.step(0)
    hand.tell(1, Fence(Address(2, 0), THERE))
    hand.lose(Hello)
    (refused,) = only(hand.deliver(Parcel), events.RejectedFrame)
    assert refused.reason is Reason.STALE
    assert hand.mail() == [Hello(REBORN, HERE)]
    (back,) = only(hand.deliver(Hello), events.TakenBack)
    assert back.parcel.weight == 0.5
    assert hand.cores[0].view.members == {0: 0, 1: 1, 2: 0}
    assert hand.total()[0] == 3.0


@pytest.mark.parametrize(
    "message",
    [
        Hello(REBORN, HERE),
        Ack(REBORN, HERE, 0),
        Refusal(REBORN, HERE, 0),
        Pass(REBORN, HERE, 0, 0),
        replace(parcel(weight=0.1), origin=REBORN),
        Fence(REBORN, Address(0, 0)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_any_word_of_a_new_life_brings_back_what_went_to_the_old(message: Message) -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp")
    hand.step(0)
    effects = hand.tell(0, message)
    (back,) = only(effects, events.TakenBack)
    assert back.parcel.key == (HERE, THERE, 0)
    assert not only(effects, events.Released), "a new life knows nothing of what an old one booked"
    assert hand.cores[0].view.incarnation(1) == 1
    assert len(hand.cores[0].outbox) == 0


def test_a_new_life_gets_sequences_from_0() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp")
    hand.step(0)
    hand.tell(0, Ack(THERE, HERE, 0))
    hand.feed(0, events.PeerAlive(REBORN))
    hand.post.clear()
    hand.step(0)
    (sent,) = hand.parcels()
    assert (sent.destination, sent.sequence) == (REBORN, 0)


def test_the_dead_get_nothing_and_the_others_close_ranks() -> None:
    hand = Hand(1.0, 2.0, 3.0, turns=[CIRCLE], algorithm="osgp")
    hand.feed(0, events.PeerDied(Address(1, 0)))
    hand.step(0)
    assert [p.destination for p in hand.parcels()] == [Address(2, 0)], "2 fills the place of 1"


def test_one_left_alone_goes_on() -> None:
    hand = Hand(1.0, 3.0)
    hand.feed(0, events.PeerDied(THERE))
    assert hand.step(0) == [events.Proceed(1)]
    assert hand.cores[0].mass.weights == [1.0]
    assert hand.cores[0].deadline is None


def test_a_joiner_is_planned_for() -> None:
    hand = Hand(1.0, 2.0, turns=[{0: {2: 0.5}}], algorithm="osgp")
    hand.step(0)
    assert not hand.post
    hand.feed(0, events.PeerAlive(Address(5, 0)))
    hand.step(0)
    assert [p.destination for p in hand.parcels()] == [Address(5, 0)]


def test_the_death_of_a_former_life_is_old_news() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp")
    hand.feed(0, events.PeerAlive(REBORN))
    hand.step(0)
    assert hand.feed(0, events.PeerDied(THERE)) == []
    assert hand.cores[0].view.members == {0: 0, 1: 1}
    assert len(hand.cores[0].outbox) == 1


def test_somebody_declared_dead_who_is_within_reach_again_is_told_so() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp")
    hand.feed(0, events.PeerDied(THERE))
    hand.feed(0, events.PeerAlive(THERE))
    assert hand.mail() == [Fence(HERE, THERE)]
    hand.lose()
    hand.step(0)
    assert hand.mail() == [Fence(HERE, THERE)], "and again instead of every push, until it knows"
    assert hand.cores[0].mass.weights == [1.0]


def test_two_that_declared_each_other_dead_both_come_back() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR], algorithm="osgp")
    hand.step(0), hand.step(1)
    hand.lose()
    hand.feed(0, events.PeerDied(THERE))
    hand.feed(1, events.PeerDied(HERE))
    hand.feed(0, events.PeerAlive(THERE))
    hand.feed(1, events.PeerAlive(HERE))
    hand.settle()
    assert [core.me.incarnation for core in hand.cores] == [1, 1]
    assert [dict(core.view.members) for core in hand.cores] == [{0: 1, 1: 1}] * 2
    hand.round()
    assert hand.total()[0] == pytest.approx(2.0)


def test_a_false_death_counts_mass_twice_only_until_they_meet() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp")
    hand.step(0)
    hand.deliver(Parcel)
    hand.lose(Ack)
    hand.feed(0, events.PeerDied(THERE))
    assert hand.total()[0] == 2.5, "booked there, and taken back here"
    hand.feed(0, events.PeerAlive(THERE))
    hand.settle()
    assert hand.cores[1].me == REBORN
    assert hand.total()[0] == 2.0


def test_a_death_in_the_middle_of_a_wait_ends_it() -> None:
    hand = Hand(1.0, 3.0)
    assert not only(hand.step(0), events.Proceed)
    effects = hand.feed(0, events.PeerDied(THERE))
    assert [type(effect) for effect in effects] == [events.TakenBack, events.Proceed]
    assert hand.cores[0].mass.weights == [1.0], "merged before the trainer goes on"
