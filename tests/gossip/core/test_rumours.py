"""News go to the neighbours with every exchange and, at rest or in steps alone, now and then; all pass them on."""

from __future__ import annotations

import pytest
from hand_swarm import CIRCLE, PAIR, Hand, only

from gossip import events
from gossip.core.news import Rumours
from gossip.membership import Membership, MembershipSettings, Record
from gossip.membership.body_codec import encode_updates, pack_update
from gossip.wire.messages import Address, News


def news(hand: Hand) -> list[tuple[int, int, bytes]]:
    """Return the news at the post, as (from, to, body)."""
    mail = [one for one in hand.mail() if isinstance(one, News)]
    return [(one.origin.rank, one.destination.rank, one.body) for one in mail]


def test_rounds_count_up_and_set_the_next_time() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[{0: {1: 0.5}}, {0: {2: 0.5}}])
    rumours = Rumours(hand.cores[0].state, hand.cores[0].outlet, None)
    assert rumours.due_at is None
    rumours.body = b"a"
    for now in (1.0, 2.0, 2.0):
        rumours.tell(now)
    sent = [hand.read(send).destination.rank for send in hand.cores[0].outlet.taken(events.Publish, 2.0)]
    assert sent == [1, 2, 1], "the neighbours of the turns 0, 1, 2"
    assert rumours.due_at is not None
    assert 2.0 < rumours.due_at <= 3.0


def test_a_peer_with_nothing_to_say_says_nothing() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR])
    hand.feed(0, events.Rest())
    assert news(hand) == []
    assert hand.cores[0].deadline is None


def test_with_each_step_the_news_go_to_the_neighbour_of_the_next_turn() -> None:
    turns = [{0: {1: 0.5}}, {0: {2: 0.5}}]
    hand = Hand(1.0, 3.0, 5.0, turns=turns, algorithm="osgp")
    hand.feed(0, events.Publish(b"a"))
    assert news(hand) == [], "the trainer has the values: not before the step is over"
    hand.step(0)
    hand.feed(0, events.Publish(b"b"))
    hand.step(0)
    assert news(hand) == [(0, 1, b"a"), (0, 2, b"b")]


def test_steps_without_an_exchange_pass_on_what_is_fresh_and_now_and_then_everything() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR], algorithm="local:h=1000")
    for now, body, fresh in (
        (1.0, b"a", b""),
        (1.4, b"b", b""),
        (1.8, b"c", b"+"),
        (4.5, b"d", b"+"),
        (4.6, b"e", b""),
    ):
        hand.now = now
        hand.feed(0, events.Publish(body, fresh=fresh))
        hand.step(0)
    assert news(hand) == [(0, 1, b"a"), (0, 1, b"+"), (0, 1, b"d")]
    assert len(hand.cores[0].outbox) == 0


def test_a_peer_that_takes_no_further_step_tells_its_last_news_all_the_same() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR], algorithm="local:h=1000")
    hand.feed(0, events.Publish(b"a"))
    hand.step(0)
    assert hand.cores[0].deadline is None
    hand.feed(0, events.Publish(b"b"))
    hand.step(0)
    assert news(hand) == [(0, 1, b"a")]
    due = hand.cores[0].deadline
    assert due is not None
    hand.tick(0, due)
    assert news(hand) == [(0, 1, b"a"), (0, 1, b"b")]
    assert hand.cores[0].deadline is None, "it has nothing else to say"


@pytest.mark.parametrize("algorithm", ["allreduce", "outer:h=1000"])
def test_peers_that_average_in_every_step_pass_the_news_on_with_each(algorithm: str) -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR], algorithm=algorithm)
    for body in (b"a", b"b"):
        hand.feed(0, events.Publish(body))
        hand.step(0)
    assert news(hand) == [(0, 1, b"a"), (0, 1, b"b")][: 1 if "outer" in algorithm else 2]


def test_steps_without_an_exchange_pass_on_at_once_that_a_member_has_changed() -> None:
    watch = Membership(Record(0, endpoint="here:1"), MembershipSettings(), seed=1, now=0.0)
    hand = Hand(1.0, 3.0, turns=[PAIR])
    rumours = Rumours(hand.cores[0].state, hand.cores[0].outlet, watch)
    rumours.body = b"a"

    def sent() -> int:
        return len(only(hand.cores[0].outlet.taken(events.Publish, 0.0), events.Send))

    rumours.step_alone(1.0)
    assert sent() == 1
    rumours.step_alone(1.1)
    assert sent() == 0
    watch.absorb(encode_updates([pack_update(Record(2, endpoint="there:2"))]), 1.2)
    rumours.step_alone(1.2)
    assert sent() == 1


def test_at_rest_what_is_new_goes_out_at_once_and_again_every_so_often() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR])
    hand.feed(0, events.Rest())
    hand.feed(0, events.Publish(b"a"))
    assert news(hand) == [(0, 1, b"a")]
    for count in range(2, 5):
        due = hand.cores[0].deadline
        assert due is not None
        hand.tick(0, due)
        assert news(hand) == [(0, 1, b"a")] * count
    hand.feed(0, events.Resume())
    assert hand.cores[0].deadline is None, "the trainer's steps are occasion enough"


def test_what_is_heard_is_handed_up_and_changes_nothing_here() -> None:
    hand = Hand(1.0, 3.0, turns=[PAIR])
    before = hand.bits(1)
    hand.feed(0, events.Rest())
    hand.feed(0, events.Publish(b"\x00anything"))
    assert hand.deliver(News) == [events.Heard(Address(0, 0), b"\x00anything")]
    assert hand.bits(1) == before


def test_statements_that_are_passed_on_come_to_everybody() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[CIRCLE])
    for rank in range(3):
        hand.feed(rank, events.Rest())
    hand.feed(0, events.Publish(b"x"))
    knows = {0}
    while hand.post:
        to = hand.post[0].to.rank
        for heard in only(hand.deliver(), events.Heard):
            if to not in knows:
                knows.add(to)
                hand.feed(to, events.Publish(heard.body))
    assert knows == {0, 1, 2}
