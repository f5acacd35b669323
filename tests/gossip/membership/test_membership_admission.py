"""How newcomers get in, restarted peers take a later life, and a second bearer of a rank is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from membership_hand import KEY, Hand, mail, only
from repeats import some

from gossip.membership import Membership, MembershipSettings, Record, State
from gossip.membership.bodies import Behind, Digest, Holdings, JoinRequest, MemberNews, Ping, ProbeAck, Taken, Welcome
from gossip.membership.body_codec import BODY_LIMIT
from gossip.membership.member_events import (
    AskIn,
    BodyReceived,
    Joined,
    JoinRefused,
    LifeOver,
    MemberLeave,
    MemberTick,
    NextLife,
    SendBody,
    StateChanged,
)
from gossip.simulation.memberships import Conditions, MembershipSwarm, record_of

SETTINGS = MembershipSettings()


def answers(hand: Hand, rank: int, life: int, endpoint: str, key: str = "") -> list[tuple[object, str]]:
    """Let a newcomer ask; return what is said, and to which endpoint."""
    effects = hand.say(rank, JoinRequest(endpoint, key), life=life)
    sends = [effect for effect in effects if isinstance(effect, SendBody)]
    return [(envelope.said, send.endpoint) for (_, envelope), send in zip(mail(sends), sends, strict=True)]


def test_a_stranger_is_welcome_and_announced() -> None:
    hand = Hand()
    assert answers(hand, 20, 3, "new:1", KEY) == [(Welcome(3), "new:1")]
    assert hand.one.record(20) == Record(20, 3, 0, State.ALIVE, "new:1", KEY)
    assert only(hand.effects, StateChanged) == [StateChanged(Record(20, 3, endpoint="new:1", key=KEY), None)]
    assert 20 in hand.one._opinions.updates._told


@pytest.mark.parametrize("state", [State.ALIVE, State.SUSPECT, State.DEAD, State.LEFT])
@pytest.mark.parametrize("life", [4, 5, 6])
def test_a_restarted_peer_is_welcome_in_a_later_life_only(state: State, life: int) -> None:
    hand = Hand()
    hand.say(1, MemberNews(), record_of(5, 5).become(state))
    expected = Welcome(6) if life == 6 else Behind(5)
    assert answers(hand, 5, life, "peer-5:5555") == [(expected, "peer-5:5555")]
    assert (hand.one.record(5) == record_of(5, 6)) == (life == 6)


@pytest.mark.parametrize("life", [0, 1])
@pytest.mark.parametrize(("endpoint", "key"), [("other:1", ""), ("peer-5:5555", KEY)])
def test_a_second_bearer_of_a_rank_is_refused_by_name_if_the_first_answers(life: int, endpoint: str, key: str) -> None:
    hand = Hand()
    ((ping, to),) = answers(hand, 5, life, endpoint, key)
    assert to == "peer-5:5555", "the first is asked, not the newcomer"
    assert isinstance(ping, Ping)
    assert answers(hand, 5, life, endpoint, key) == [], "it is being looked into"
    effects = hand.say(5, ProbeAck(ping.sequence))
    ((_, envelope),) = mail(effects)
    assert isinstance(envelope.said, Taken)
    assert "rank 5 is taken: peer-5:5555" in envelope.said.reason
    assert [effect.endpoint for effect in effects if isinstance(effect, SendBody)] == [endpoint]
    assert hand.one.record(5) == record_of(5)


@pytest.mark.parametrize(("life", "expected"), [(0, Behind(0)), (1, Welcome(1))])
def test_if_the_first_does_not_answer_the_second_takes_over_with_a_later_life(life: int, expected: object) -> None:
    hand = Hand()
    answers(hand, 5, life, "other:1")
    sent = hand.until(hand.now + 1.51)
    assert expected in [envelope.said for to, envelope in sent if to == 5]


@pytest.mark.parametrize("dead_before", [False, True])
def test_one_that_lost_its_rank_while_it_was_stopped_is_told_at_its_own_endpoint(dead_before: bool) -> None:
    """Otherwise it would hear nothing, take all others for dead, and train alone for ever."""
    hand = Hand()
    if dead_before:
        hand.say(1, MemberNews(), record_of(5).become(State.DEAD))
    answers(hand, 5, 1, "other:1")
    hand.until(hand.now + 1.51)
    assert hand.one.record(5) == replace(record_of(5, 1), endpoint="other:1")
    sends = [effect for effect in hand.say(5, Ping(7)) if isinstance(effect, SendBody)]
    assert "peer-5:5555" in [one.endpoint for one in sends]
    told = next(one for one in sends if one.endpoint == "peer-5:5555")
    former = Hand()
    former.one = Membership(record_of(5), SETTINGS, 1, 0.0, {0: record_of(0), 5: record_of(5)})
    (refused,) = only(former.feed(BodyReceived(0, told.body)), JoinRefused)
    assert isinstance(refused, JoinRefused)
    assert "rank 5 is taken: other:1" in refused.reason


def test_the_rank_of_the_contact_itself_is_taken() -> None:
    hand = Hand()
    ((said, to),) = answers(hand, 0, 9, "other:1")
    assert isinstance(said, Taken)
    assert to == "other:1"


def newcomer(rank: int = 20, life: int = 0) -> Membership:
    one = Membership(record_of(rank, life), SETTINGS, 1, 0.0)
    one.handle(AskIn([record_of(1), record_of(2)]), 0.0)
    return one


def test_a_newcomer_asks_its_contacts_in_turn_and_answers_no_pings_meanwhile() -> None:
    one = newcomer()
    hand = Hand(n=1)
    hand.one, hand.now = one, 0.0
    assert [(to, type(envelope.said)) for to, envelope in hand.until(5.5)] == [(2, JoinRequest), (1, JoinRequest)]
    assert hand.say(1, Ping(3)) == []


def test_a_newcomer_that_is_behind_takes_a_later_life_and_asks_again() -> None:
    hand = Hand(n=1)
    hand.one, hand.now = newcomer(), 0.0
    assert only(hand.say(1, Behind(7), record_of(20, 7).become(State.DEAD)), LifeOver) == [LifeOver(7)]
    sent = mail(hand.feed(NextLife(8)))
    assert [(envelope.said, envelope.incarnation) for _, envelope in sent] == [(JoinRequest("peer-20:5555", ""), 8)]
    hand.say(1, Welcome(0), record_of(1))
    assert hand.one._admission.asking, "that was for a life that we gave up"
    hand.say(1, Welcome(8), record_of(1))
    assert not hand.one._admission.asking


def test_a_refused_newcomer_says_why_and_asks_no_more() -> None:
    hand = Hand(n=1)
    hand.one, hand.now = newcomer(), 0.0
    assert only(hand.say(1, Taken("rank 20 is taken by a:1")), JoinRefused) == [JoinRefused("rank 20 is taken by a:1")]
    assert not [one for one in hand.until(60.0) if isinstance(one[1].said, JoinRequest)]


def test_a_late_answer_to_asking_means_nothing_to_a_member() -> None:
    hand = Hand()
    assert hand.say(1, Behind(7)) == []
    assert hand.say(1, Taken("no")) == []


def test_of_two_members_with_one_rank_the_earlier_life_is_told_to_stop() -> None:
    hand = Hand()
    (refused,) = only(hand.say(1, MemberNews(), replace(record_of(0, 3), endpoint="other:1")), JoinRefused)
    assert isinstance(refused, JoinRefused)
    assert "rank 0 is taken: other:1" in refused.reason


def test_join_without_contacts_says_so() -> None:
    one = Membership(record_of(3), SETTINGS, 1, 0.0)
    with pytest.raises(ValueError, match="there are no contacts to ask"):
        one.handle(AskIn([]), 0.0)
    with pytest.raises(ValueError, match="contact 1"):
        one.handle(AskIn([Record(1, endpoint="nowhere")]), 0.0)


def test_who_left_is_silent() -> None:
    hand = Hand()
    sent = mail(hand.feed(MemberLeave()))
    assert len(sent) == 7
    assert all(envelope.updates[0].record.state is State.LEFT for _, envelope in sent)
    assert hand.one.deadline is None
    assert hand.one.handle(MemberTick(), hand.now) == []
    assert hand.one.handle(BodyReceived(1, b"\x96\x01\x00\x00\x00\x05\x90"), hand.now) == []


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("seed", some(range(4), 2))
def test_joins_and_leaves_are_known_to_all_soon(seed: int, loss: float) -> None:
    swarm = MembershipSwarm(SETTINGS, seed, Conditions(loss=loss, duplicate=loss))
    swarm.start(range(32))
    swarm.run(5.0)
    for rank in range(100, 108):
        swarm.add(record_of(rank))
        swarm.post(rank, AskIn([record_of(rank % 32), record_of(rank % 7)]))
    assert swarm.run(60.0, swarm.agreed) < 20.0
    swarm.run(10.0)
    assert sum(isinstance(change.effect, Joined) for change in swarm.changes) == 8
    for rank in range(10):
        swarm.post(rank, MemberLeave())
        swarm.kill(rank)
    assert swarm.run(60.0, swarm.agreed) < 10.0
    left = {
        r.rank for one in swarm.running() for rank in range(10) if (r := one.record(rank)) and r.state is State.LEFT
    }
    assert left == set(range(10))
    for one in swarm.running():
        one.validate_state()


def test_a_peer_that_restarts_at_once_is_back_in_a_later_life() -> None:
    swarm = MembershipSwarm(SETTINGS, 3)
    swarm.start(range(16))
    swarm.run(10.0)
    swarm.kill(4)
    swarm.run(1.0)
    swarm.add(record_of(4))  # its counter is lost: life 0 again
    swarm.post(4, AskIn([record_of(9)]))
    assert swarm.run(30.0, swarm.agreed) < 5.0
    assert swarm.peers[4].membership.me.incarnation == 1


def test_a_large_table_is_handed_over_in_bodies_within_the_limit() -> None:
    hand = Hand(n=1500)
    effects = hand.say(20, Digest(bytes(512), answer=False))
    assert all(len(effect.body) <= BODY_LIMIT for effect in effects if isinstance(effect, SendBody))
    holdings = [envelope for _, envelope in mail(effects) if isinstance(envelope.said, Holdings)]
    assert len(holdings) > 1
    assert {update.record.rank for envelope in holdings for update in envelope.updates} == set(range(1500))


def test_a_newcomer_compares_tables_until_somebody_answers() -> None:
    hand = Hand(n=1)
    hand.one, hand.now = newcomer(), 0.0
    hand.say(1, Welcome(0), record_of(1))
    sent = hand.until(10.0)
    assert sum(isinstance(envelope.said, Digest) for _, envelope in sent) >= 5
    assert only(hand.effects, Joined) == []
    hand.say(1, Holdings())
    assert only(hand.effects, Joined) == [Joined()]
    assert not [envelope for _, envelope in hand.until(30.0) if isinstance(envelope.said, Digest)][2:]
