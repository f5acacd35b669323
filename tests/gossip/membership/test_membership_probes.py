"""One peer by hand: whom it probes, when it asks others, whom it accuses, and when it finds itself unwell."""

from __future__ import annotations

import pytest
from membership_hand import Hand, mail, only

from gossip.membership import State
from gossip.membership.bodies import Errand, MemberNews, Nack, Ping, ProbeAck, Update
from gossip.membership.member_events import LifeOver, LifeSign, MemberTick, NextLife, ReportSlow, StateChanged
from gossip.simulation.memberships import record_of


def probe(hand: Hand) -> tuple[int, int]:
    """Go on to the next probe; return its rank and sequence."""
    while True:
        assert hand.one.deadline is not None
        for rank, envelope in hand.until(hand.one.deadline):
            if isinstance(envelope.said, Ping):
                return rank, envelope.said.sequence


def state(hand: Hand, rank: int) -> State:
    record = hand.one.record(rank)
    assert record is not None
    return record.state


def test_a_silent_member_is_suspected_after_its_interval_with_helpers_asked_in_between() -> None:
    hand = Hand()
    rank, sequence = probe(hand)
    began = hand.now
    assert hand.until(began + 0.49) == []
    *asked, (again, ping) = hand.until(began + 0.51)
    assert (again, type(ping.said)) == (rank, Ping), "and once more by ourselves"
    assert len({helper for helper, _ in asked}) == 3
    assert rank not in {helper for helper, _ in asked}
    assert all(envelope.said == Errand(sequence, rank) for _, envelope in asked)
    hand.until(began + 1.49)
    assert state(hand, rank) is State.ALIVE
    hand.until(began + 1.51)
    assert state(hand, rank) is State.SUSPECT
    assert only(hand.effects, StateChanged) == [StateChanged(record_of(rank).become(State.SUSPECT), record_of(rank))]


@pytest.mark.parametrize("by", ["itself", "a helper", "data"])
def test_any_sign_of_life_ends_the_probe(by: str) -> None:
    hand = Hand()
    rank, sequence = probe(hand)
    began = hand.now
    hand.until(began + 0.6)
    if by == "data":
        hand.feed(LifeSign(rank, 0))
    else:
        hand.say(rank if by == "itself" else rank % 7 + 1, ProbeAck(sequence))
    hand.until(began + 1.6)
    assert state(hand, rank) is State.ALIVE


def test_data_of_a_former_life_is_no_sign_of_life() -> None:
    hand = Hand()
    hand.say(1, MemberNews(), *(record_of(rank, 5) for rank in range(2, 8)))
    rank, sequence = probe(hand)
    if rank == 1:
        hand.say(1, ProbeAck(sequence))
        rank, _ = probe(hand)
    hand.feed(LifeSign(rank, 4))
    hand.until(hand.now + 1.6)
    assert state(hand, rank) is State.SUSPECT


def test_the_timeout_is_learned_within_its_bounds() -> None:
    hand = Hand()
    assert hand.one._probes.timeout == 0.5
    for _ in range(20):
        rank, sequence = probe(hand)
        hand.now += 0.001
        hand.say(rank, ProbeAck(sequence))
    assert hand.one._probes.timeout == 0.2, "not below the floor, however short the round trips"
    for _ in range(20):
        rank, sequence = probe(hand)
        hand.until(hand.now + 0.28)
        hand.say(rank, ProbeAck(sequence))
    assert 0.28 < hand.one._probes.timeout <= 0.5


def test_missing_nacks_make_us_unwell_and_stretch_our_times() -> None:
    hand = Hand()
    probe(hand)
    began = hand.now
    hand.until(began + 1.6)
    assert hand.one.health == 3, "three helpers, and not a word of any"
    assert hand.one.deadline is not None
    hand.until(began + 1.5 + 4 * 0.5 - 0.01)
    assert not [one for one in hand.until(began + 1.5 + 4 * 0.5 - 0.001) if isinstance(one[1].said, Errand)]
    asked = [one for one in hand.until(began + 1.5 + 4 * 0.5 + 0.01) if isinstance(one[1].said, Errand)]
    assert len(asked) == 3, "timeouts are four times as long now"


def test_with_all_nacks_it_is_the_other_who_is_silent() -> None:
    hand = Hand()
    rank, sequence = probe(hand)
    began = hand.now
    helpers = [to for to, envelope in hand.until(began + 0.51) if isinstance(envelope.said, Errand)]
    for helper in [*helpers, helpers[0]]:
        hand.say(helper, Nack(sequence))
    hand.until(began + 1.6)
    assert state(hand, rank) is State.SUSPECT
    assert hand.one.health == 0


def test_an_errand_is_run_and_answered_either_way() -> None:
    hand = Hand()
    hand.until(hand.now + 0.1)
    ((to, ping),) = mail(hand.say(1, Errand(77, 2)))
    assert to == 2
    assert isinstance(ping.said, Ping)
    assert mail(hand.say(2, ProbeAck(ping.said.sequence))) == [(1, mail(hand.effects[-1:])[0][1])]
    assert mail(hand.effects[-1:])[0][1].said == ProbeAck(77)
    hand.say(1, Errand(78, 3))
    sent = hand.until(hand.now + 0.55)
    assert (1, Nack(78)) in [(to, envelope.said) for to, envelope in sent]
    hand.until(hand.now + 3.0)
    assert not hand.one._probes._errands, "errands are forgotten"


def test_an_errand_to_the_dead_is_answered_at_once() -> None:
    hand = Hand()
    hand.say(1, MemberNews(), record_of(2).become(State.DEAD))
    assert [envelope.said for _, envelope in mail(hand.say(1, Errand(5, 2)))] == [Nack(5)]


def test_a_suspect_dies_after_its_time_and_confirmations_shorten_it() -> None:
    lonely, crowded = Hand(), Hand()
    suspect = record_of(5).become(State.SUSPECT)
    for hand, accusers in ((lonely, (0,)), (crowded, (1, 2, 3, 4))):  # our own probes confirm it, unless we began it
        hand.say(1, MemberNews(), Update(suspect, accusers))
        began = hand.now
        least = hand.settings.suspicion_least(8)
        time = least if hand is crowded else 6 * least
        while hand.now < began + time - 0.2:
            hand.until(hand.now + 0.1)
            for rank in (1, 2, 3, 4, 6, 7):
                hand.feed(LifeSign(rank, 0))
        assert state(hand, 5) is State.SUSPECT
        hand.until(began + time + 0.2)
        assert state(hand, 5) is State.DEAD


def test_a_suspect_that_is_heard_does_not_die_here_and_is_told_to_refute() -> None:
    hand = Hand()
    suspicion = Update(record_of(5).become(State.SUSPECT), (1, 2, 3, 4))
    hand.say(1, MemberNews(), suspicion)
    for _ in range(40):
        hand.until(hand.now + 0.5)
        sent = [one for one in mail(hand.feed(LifeSign(5, 0))) if one[0] == 5]
        assert [update.record.state for _, envelope in sent for update in envelope.updates[:1]] == [State.SUSPECT]
    assert state(hand, 5) is State.SUSPECT
    assert 5 not in hand.one._opinions.updates._told, "and we do not pass it on"
    hand.say(5, MemberNews(), refutations=1)
    assert state(hand, 5) is State.ALIVE


def test_the_accused_refutes_without_a_new_life_and_tells_its_accusers_first() -> None:
    hand = Hand()
    sent = mail(hand.say(1, MemberNews(), Update(record_of(0).become(State.SUSPECT), (3, 4))))
    assert hand.one.me.refutations == 1
    assert hand.one.me.incarnation == 0
    assert not only(hand.effects, LifeOver)
    assert {to for to, _ in sent} == {3, 4}
    assert all(envelope.updates[0].record == hand.one.me for _, envelope in sent)
    assert hand.one.health == 1, "whoever is suspected may be unwell"


def test_who_is_declared_dead_needs_a_new_life() -> None:
    hand = Hand()
    dead = record_of(0).become(State.DEAD)
    assert only(hand.say(1, MemberNews(), dead), LifeOver) == [LifeOver(0)]
    assert only(hand.say(2, MemberNews(), dead), LifeOver) == [], "once is enough"
    with pytest.raises(ValueError, match="life 0"):
        hand.feed(NextLife(0))
    hand.feed(NextLife(1))
    assert hand.one.me == record_of(0, 1)
    assert not only(hand.say(2, MemberNews(), dead), LifeOver)
    assert only(hand.say(2, MemberNews(), record_of(0, 4)), LifeOver) == [LifeOver(4)]


def test_the_dead_that_speaks_is_told_so() -> None:
    hand = Hand()
    hand.say(1, MemberNews(), record_of(5).become(State.DEAD))
    sent = mail(hand.say(5, Ping(3)))
    assert all(envelope.updates[0].record.state is State.DEAD for to, envelope in sent if to == 5)
    assert (5, ProbeAck(3)) in [(to, envelope.said) for to, envelope in sent]
    assert state(hand, 5) is State.DEAD, "this life is over"
    hand.say(5, Ping(4), life=1)
    assert hand.one.record(5) == record_of(5, 1)


def test_slow_is_told_by_the_layer_above_and_never_leads_to_death() -> None:
    hand = Hand()
    hand.feed(ReportSlow(3))
    hand.feed(ReportSlow(3))
    assert only(hand.effects, StateChanged) == [StateChanged(record_of(3).become(State.SLOW), record_of(3))]
    assert state(hand, 3) is State.SLOW
    assert [record.rank for record in hand.one.members()] == list(range(8))
    assert len(hand.one._opinions.updates) == 0, "it is nobody else's business"
    hand.feed(ReportSlow(3, slow=False))
    assert state(hand, 3) is State.ALIVE
    hand.feed(ReportSlow(3))
    hand.say(1, MemberNews(), record_of(3, 1))
    assert state(hand, 3) is State.ALIVE, "a new life starts anew"


def test_late_answers_make_a_member_slow_and_one_in_time_ends_it() -> None:
    hand = Hand(n=2)
    for expected, after in ((State.ALIVE, 0.7), (State.SLOW, 0.7), (State.ALIVE, 0.01)):
        rank, sequence = probe(hand)
        hand.until(hand.now + after * hand.one._probes.health.stretch)
        hand.say(rank, ProbeAck(sequence))
        assert state(hand, rank) is expected


def test_a_peer_that_slept_accuses_nobody_for_it() -> None:
    hand = Hand()
    rank, sequence = probe(hand)
    hand.say(1, MemberNews(), Update(record_of(5).become(State.SUSPECT), (1, 2, 3, 4)))
    hand.now += 60.0
    hand.feed(MemberTick())
    assert state(hand, rank) in (State.ALIVE, State.SUSPECT if rank == 5 else State.ALIVE)
    assert state(hand, 5) is State.SUSPECT, "its refutation may be in our mail"
    assert hand.one.health == 1
    assert hand.one._probes._probe is not None
    assert sequence in hand.one._probes._probe.pings, "the probe has all the time that it had"


def test_who_is_always_late_still_gets_on() -> None:
    hand = Hand()
    probes = 0
    for _ in range(400):
        assert hand.one.deadline is not None
        hand.now = hand.one.deadline + 0.5
        probes += sum(isinstance(envelope.said, Ping) for _, envelope in mail(hand.feed(MemberTick())))
    assert probes > 20


def test_own_sleep_is_no_round_trip() -> None:
    hand = Hand(n=2)
    rank, sequence = probe(hand)
    hand.now += 60.0
    hand.say(rank, ProbeAck(sequence))
    assert hand.one._probes._trips.mean is None
    assert state(hand, rank) is State.ALIVE


def test_news_go_with_what_the_layer_above_sends() -> None:
    one, other = Hand(), Hand()
    assert one.one.piggyback(1000) == b""
    one.say(1, MemberNews(), record_of(5).become(State.DEAD), record_of(6, 3))
    assert len(one.one.piggyback(40)) <= 40
    body = one.one.piggyback(1000)
    assert 0 < len(body) <= 1000
    found = only(other.one.absorb(body, other.now), StateChanged)
    assert sorted(change.record.rank for change in found) == [5, 6]  # type: ignore[union-attr]
