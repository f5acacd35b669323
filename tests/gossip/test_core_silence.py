"""Who says nothing for too long is declared dead, and nobody else is."""

from __future__ import annotations

from hand_swarm import Hand, only

from gossip import events
from gossip.messages import Ack, Address, Parcel

ONE_WAY = {0: {1: 0.5}}


def tick_until(hand: Hand, rank: int, end: float) -> list[events.Effect]:
    """Let a core do what is due until then, while everything that it sends is lost."""
    effects: list[events.Effect] = []
    while (deadline := hand.cores[rank].deadline) is not None and deadline <= end:
        effects += hand.tick(rank, deadline)
        hand.lose()
    return effects


def silent_swarm(silence: float = 5.0) -> Hand:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY, {}], algorithm="osgp", silence=silence, resend_first=0.5, resend_ceiling=1.0)
    hand.step(0)
    hand.lose()
    return hand


def test_the_silent_are_given_up_and_their_mass_comes_back() -> None:
    hand = silent_swarm()
    effects = tick_until(hand, 0, 20.0)
    assert only(effects, events.GaveUp) == [events.GaveUp(Address(1, 0))]
    assert len(only(effects, events.TakenBack)) == 1
    assert 1 not in hand.cores[0].view.members
    assert len(hand.cores[0].outbox) == 0


def test_nobody_is_given_up_before_the_time() -> None:
    hand = silent_swarm()
    assert only(tick_until(hand, 0, 5.0), events.GaveUp) == []


def test_without_the_setting_nobody_is_given_up() -> None:
    hand = silent_swarm(silence=0.0)
    assert only(tick_until(hand, 0, 100.0), events.GaveUp) == []


def test_any_word_is_a_sign_of_life() -> None:
    hand = silent_swarm()
    tick_until(hand, 0, 4.0)
    hand.tell(0, Ack(Address(1, 0), Address(0, 0), 99))  # an answer to nothing
    assert only(tick_until(hand, 0, 8.5), events.GaveUp) == []
    assert only(tick_until(hand, 0, 20.0), events.GaveUp) != []


def test_who_was_asleep_itself_asks_again_before_it_accuses() -> None:
    hand = silent_swarm()
    assert only(hand.tick(0, 60.0), events.GaveUp) == [], "a minute in one step: it was us who slept"
    hand.deliver(Parcel)
    hand.settle()
    assert only(tick_until(hand, 0, 200.0), events.GaveUp) == []
