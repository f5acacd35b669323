"""What the core makes of what membership finds out, and membership of what the core hears."""

from __future__ import annotations

import numpy as np
import pytest
from hand_swarm import RUN, only, schedule

from gossip import events, policies
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.errors import InvariantError
from gossip.membership import Membership, MembershipSettings, Record, State
from gossip.membership.bodies import Behind, Digest, Holdings, JoinRequest, MemberNews, Ping, Said, Welcome
from gossip.membership.body_codec import decode, encode, encode_updates, pack_update
from gossip.settings import Settings
from gossip.values.layout import Layout
from gossip.view.view import Roster
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Message, Parcel, Roll
from gossip.wire.messages import News as Rumour

HERE, THERE = Address(0, 0), Address(1, 0)
EVERYBODY = {0: {1: 0.25, 2: 0.25}, 1: {2: 0.5}, 2: {0: 0.5}}


def record(rank: int, life: int = 0, state: State = State.ALIVE) -> Record:
    return Record(rank, life, 0, state, endpoint=f"peer-{rank}:5555")


class Watched:
    """The core of rank 0, which looks after the others; nobody else is there."""

    def __init__(self, n: int = 3, algorithm: str = "osgp", known: int | None = None) -> None:
        layout = Layout.uniform(2, 1, np.dtype(np.float64))
        self.codec = WireCodec(RUN, layout)
        self.now = 0.0
        members = dict.fromkeys(range(n if known is None else known), 0)
        records = {rank: record(rank) for rank in members}
        self.core = Core(
            HERE,
            Mass(layout, np.array([1.0, 2.0])),
            Roster(members, lambda count: schedule(count, EVERYBODY)),
            policies.parse(algorithm),
            Settings(run=RUN),
            membership=Membership(record(0), MembershipSettings(), 1, 0.0, records),
        )

    def feed(self, event: events.Event) -> list[events.Effect]:
        effects = self.core.handle(event, self.now)
        self.core.validate_state()
        return effects

    def hear(self, message: Message) -> list[events.Effect]:
        return self.feed(events.Received(self.codec.encode(message)))

    def say(self, origin: int, said: Said, *updates: Record, life: int = 0) -> list[events.Effect]:
        """Let a peer say something about members."""
        body = encode(record(origin, life), said, [pack_update(update) for update in updates])
        return self.hear(Roll(Address(origin, life), self.core.me, body))

    def read(self, effects: list[events.Effect]) -> list[Message]:
        return [self.codec.decode(effect.frames) for effect in only(effects, events.Send)]

    def rolls(self, effects: list[events.Effect]) -> list[Said]:
        return [decode(one.body, 0).said for one in self.read(effects) if isinstance(one, Roll)]

    @property
    def membership(self) -> Membership:
        assert self.core.membership is not None
        return self.core.membership


def test_nobody_is_looked_after_before_the_word() -> None:
    one = Watched()
    assert one.core.deadline is None
    one.feed(events.Watch())
    assert one.core.deadline is not None


def test_probes_go_out_as_messages() -> None:
    one = Watched()
    one.feed(events.Watch())
    one.now = one.core.deadline or 0.0
    (said,) = one.rolls(one.feed(events.Tick()))
    assert isinstance(said, Ping | Digest)


def test_a_death_that_is_told_brings_the_parcels_back() -> None:
    one = Watched()
    one.feed(events.Watch())
    one.feed(events.StepFinished())
    assert len(one.core.outbox) == 2
    effects = one.say(2, MemberNews(), record(1, state=State.DEAD))
    changed, back = only(effects, events.MemberChanged), only(effects, events.TakenBack)
    assert [(change.record.rank, change.record.state) for change in changed] == [(1, State.DEAD)]
    assert [effect.parcel.destination for effect in back] == [THERE]
    assert one.core.view.members == {0: 0, 2: 0}
    assert one.core.view.fenced(THERE)


def test_one_that_left_is_let_go_without_a_trial() -> None:
    one = Watched()
    one.feed(events.Watch())
    one.say(1, MemberNews(), record(1, state=State.LEFT))
    assert one.core.view.members == {0: 0, 2: 0}


def test_a_life_that_is_over_is_followed_by_another() -> None:
    one = Watched()
    one.feed(events.Watch())
    effects = one.say(2, MemberNews(), record(0, 3, State.DEAD))
    assert only(effects, events.Reincarnated) == [events.Reincarnated(Address(0, 4), 1.0)]
    assert one.core.me == Address(0, 4)
    assert one.membership.me.incarnation == 4
    assert any(isinstance(said, Digest) for said in one.rolls(effects)), "who said so is told who we are now"
    assert only(one.say(2, MemberNews(), record(0, 3, State.DEAD)), events.Reincarnated) == [], "old news"


def test_a_fence_and_membership_agree_on_the_next_life() -> None:
    """A fence of one life while others hold a later one for over: the next is later than both."""
    one = Watched()
    one.feed(events.Watch())
    one.feed(events.PeerDied(Address(0, 2)))
    assert one.core.me.incarnation == one.membership.me.incarnation == 3


def test_a_suspicion_costs_nothing() -> None:
    one = Watched()
    one.feed(events.Watch())
    effects = one.say(2, MemberNews(), record(0, state=State.SUSPECT))
    assert only(effects, events.Reincarnated) == []
    assert one.core.me == HERE
    assert one.membership.me.refutations == 1


def test_any_message_is_a_sign_of_life() -> None:
    one = Watched()
    one.feed(events.Watch())
    one.say(2, MemberNews(), record(1, state=State.SUSPECT))
    before = one.membership.deadline
    one.now = 3.0
    one.hear(Parcel(THERE, HERE, 0, 0, 0, 0.25, np.array([1.0, 1.0])))
    found = one.membership.record(1)
    assert found is not None
    assert found.state is State.SUSPECT, "only it can refute"
    assert one.membership._opinions._suspicions[1].since == 3.0, "but its time starts anew"
    assert before is not None


def test_updates_ride_on_news() -> None:
    one = Watched()
    one.feed(events.Watch())
    one.feed(events.Publish(b"news"))
    one.say(2, MemberNews(), record(7))
    told = [message for message in one.read(one.feed(events.StepFinished())) if isinstance(message, Rumour)]
    assert told
    assert all(message.updates for message in told)
    other = Watched()
    other.feed(events.Watch())
    effects = other.hear(Rumour(Address(2, 0), HERE, b"news", told[0].updates))
    assert [change.record.rank for change in only(effects, events.MemberChanged)] == [7]
    assert other.core.view.incarnation(7) == 0


def test_updates_that_cannot_be_meant_are_rejected_and_change_nothing() -> None:
    one = Watched()
    one.feed(events.Watch())
    effects = one.hear(Rumour(Address(2, 0), HERE, b"news", b"\x01"))
    assert only(effects, events.RejectedFrame)
    assert one.core.view.members == {0: 0, 1: 0, 2: 0}
    one.hear(Rumour(Address(2, 0), HERE, b"news", encode_updates([])))


def test_who_looks_after_nobody_cannot_join() -> None:
    one = Watched()
    one.core.life.membership = None
    with pytest.raises(InvariantError, match="Join needs a core with membership"):
        one.feed(events.Join([record(1)]))


def newcomer() -> Watched:
    one = Watched(known=1)
    one.feed(events.Rest(merge=False))
    return one


def test_a_newcomer_is_welcome_once_it_knows_everybody() -> None:
    one = newcomer()
    (ask,) = one.rolls(one.feed(events.Join([record(1), record(2)])))
    assert isinstance(ask, JoinRequest)
    assert only(one.say(1, Welcome(0), record(1)), events.Welcomed) == []
    effects = one.say(1, Holdings(), record(1), record(2))
    assert only(effects, events.Welcomed) == [events.Welcomed()]
    assert one.core.view.members == {0: 0, 1: 0, 2: 0}


def test_a_digest_that_overtakes_the_records_is_no_welcome() -> None:
    """The newcomer holds nothing in those parts of the table that differ, and yet they differ."""
    one = newcomer()
    one.feed(events.Join([record(1)]))
    one.say(1, Welcome(0), record(1))
    sums = Watched().membership._opinions.table.digest()
    assert only(one.say(1, Digest(sums, answer=True)), events.Welcomed) == []
    assert only(one.say(1, Holdings(), record(2)), events.Welcomed) == [events.Welcomed()]


def test_a_member_that_lacks_a_record_asks_for_it() -> None:
    """Who let the newcomer in died at once: nobody else has heard of it but by its digest."""
    one = Watched()
    one.feed(events.Watch())
    more = Watched(n=4).membership._opinions.table.digest()
    said = one.rolls(one.say(1, Digest(more, answer=False)))
    assert Digest(one.membership._opinions.table.digest(), answer=True) in said


def test_a_newcomer_says_nothing_of_itself_before_it_is_welcome() -> None:
    """Whoever heard of its life before it asks would tell it that this life is used up, again and again."""
    one = newcomer()
    one.feed(events.Join([record(1), record(2)]))
    one.say(2, Behind(0), record(2))
    assert one.core.me == Address(0, 1)
    said: list[Said] = []
    while one.now < 20.0 and one.core.deadline is not None:
        one.now = max(one.now, one.core.deadline)
        said += one.rolls(one.feed(events.Tick()))
    assert {type(each) for each in said} == {JoinRequest}


def test_who_says_that_a_life_is_used_up_is_asked_again() -> None:
    one = newcomer()
    one.feed(events.Join([record(1), record(2)]))
    effects = one.say(1, Behind(4), record(1))
    asked = [message.destination.rank for message in one.read(effects) if isinstance(message, Roll)]
    assert asked == [1]
    assert one.core.me == Address(0, 5)


def test_a_newcomer_that_leaves_before_it_has_the_state_hands_nothing_over() -> None:
    one = newcomer()
    one.feed(events.Join([record(1)]))
    one.say(1, Welcome(0), record(1))
    one.say(1, Holdings(), record(1), record(2))
    effects = one.feed(events.Leave())
    assert only(effects, events.Left) == [events.Left(1.0)]
    assert not [message for message in one.read(effects) if isinstance(message, Parcel)]
