"""Looking at a swarm from outside, through real sockets: who is shown something, and that looking is all it is."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from hand_swarm import sealed

import topologies
from gossip import events
from gossip.books.mass import Mass
from gossip.core.core import Core
from gossip.endpoint import Endpoint
from gossip.errors import Reason, Rejected
from gossip.keys import KeyPair
from gossip.membership import Membership, Record
from gossip.membership.membership_settings import MembershipSettings
from gossip.net.driver import Driver
from gossip.net.observer import Looker, NothingShown
from gossip.net.zmq_transport import ZmqTransport, new_keys
from gossip.policies import parse
from gossip.settings import Settings
from gossip.values.layout import Layout
from gossip.view.view import Roster
from gossip.wire.frames import VERSION, WireCodec
from gossip.wire.kinds import BY_CLASS
from gossip.wire.messages import (
    ANYBODY,
    Ack,
    Address,
    Bye,
    Fence,
    Hello,
    Look,
    Message,
    News,
    Parcel,
    Pass,
    Piece,
    Pull,
    Refusal,
    Roll,
    Settled,
    Shown,
    Want,
)

LOOPBACK = Endpoint("127.0.0.1", 0)
PATIENCE = 60.0
#: Seconds in which somebody who is let in would have been answered many times.
MOMENT = 0.6
LAYOUT = Layout.uniform(8, 2, np.float64)
ME, OTHER = Address(0, 0), Address(1, 0)
_LOOK, _SHOWN = BY_CLASS[Look].number, BY_CLASS[Shown].number


@dataclass
class Peer:
    """A peer of a swarm, whose effects can be waited for."""

    core: Core
    transport: ZmqTransport
    driver: Driver
    effects: queue.SimpleQueue[events.Effect] = field(default_factory=queue.SimpleQueue)

    def next(self) -> events.Effect:
        return self.effects.get(timeout=PATIENCE)


@contextmanager
def peer(
    keys: KeyPair | None = None,
    *,
    lookers: Sequence[KeyPair] = (),
    members: Sequence[KeyPair] = (),
    answers: Callable[[int], bool] = lambda _: True,
) -> Iterator[Peer]:
    """Run rank 0 of a pair; ``answers`` says whether the n-th look is answered."""
    transport = ZmqTransport(LOOPBACK, keys=keys)
    for one_key in lookers:
        transport.admit(one_key.public, looks_only=True)
    for one_key in members:
        transport.admit(one_key.public)
    roster = Roster({0: 0, 1: 0}, lambda n: topologies.parse("ring", n))
    known = {1: Record(1, endpoint="127.0.0.1:1", key=new_keys().public.decode() if keys else "")}
    me = Record(0, endpoint=str(transport.endpoint), key="" if keys is None else keys.public.decode())
    membership = Membership(me, MembershipSettings(), 0, 0.0, known)
    core = Core(ME, Mass(LAYOUT, np.ones(8)), roster, parse("osgp"), Settings(), membership=membership)
    looks = 0

    def listen(effect: events.Effect) -> None:
        nonlocal looks
        one.effects.put(effect)
        if isinstance(effect, events.Looked):
            looks += 1
            if answers(looks):
                driver.post(events.Show(effect.endpoint, effect.key, b"how it is"))

    driver = Driver(core, transport, listen=listen)
    one = Peer(core, transport, driver)
    with driver:
        yield one


def test_a_swarm_without_keys_shows_itself_to_whoever_asks() -> None:
    with peer() as there, Looker(there.transport.endpoint, bind=LOOPBACK) as looker:
        assert looker.look(PATIENCE) == b"how it is"
        assert looker.look(PATIENCE) == b"how it is", "again and again"


def test_a_look_that_is_lost_is_repeated() -> None:
    with peer(answers=lambda number: number > 1) as there, Looker(there.transport.endpoint, bind=LOOPBACK) as looker:
        assert looker.look(PATIENCE) == b"how it is"


def test_an_answer_that_is_there_counts_however_late_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was held up while it came would otherwise say that nobody answered."""
    now = 0.0
    with Looker(Endpoint("127.0.0.1", 1), bind=LOOPBACK) as looker:
        answer = looker._codec.encode(Shown(ME, Address(ANYBODY, 0), b"how it is"))

        def held_up(_: float) -> None:
            nonlocal now
            now += PATIENCE

        monkeypatch.setattr(looker._transport, "wait", held_up)
        monkeypatch.setattr(looker._transport, "receive", lambda: answer if now else None)
        monkeypatch.setattr("gossip.net.observer.time", SimpleNamespace(monotonic=lambda: now))
        assert looker.look(1.0) == b"how it is"


def test_what_an_earlier_look_has_left_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer() as there, Looker(there.transport.endpoint, bind=LOOPBACK) as looker:
        left = [looker._codec.encode(Shown(ME, Address(ANYBODY, 0), b"how it was"))]
        receive = looker._transport.receive
        monkeypatch.setattr(looker._transport, "receive", lambda: left.pop() if left else receive())
        assert looker.look(PATIENCE) == b"how it is"


def test_where_nobody_is_nothing_is_shown() -> None:
    with peer() as there:
        gone = there.transport.endpoint
    with Looker(gone, bind=LOOPBACK) as looker, pytest.raises(NothingShown) as caught:
        looker.look(0.1)
    assert str(caught.value).startswith(f"{gone} did not answer within 0.1 s. If the run is just starting, try again")


@pytest.mark.parametrize("looks_only", [True, False])
def test_a_key_that_may_look_sees(looks_only: bool) -> None:
    mine, yours = new_keys(), new_keys()
    with (
        peer(mine, lookers=[yours] if looks_only else [], members=[] if looks_only else [yours]) as there,
        Looker(there.transport.endpoint, bind=LOOPBACK, key=mine.public, keys=yours) as looker,
    ):
        assert looker.look(PATIENCE) == b"how it is"


def test_a_key_that_is_not_let_in_gets_nothing() -> None:
    mine = new_keys()
    with (
        peer(mine, lookers=[new_keys()]) as there,
        Looker(there.transport.endpoint, bind=LOOPBACK, key=mine.public, keys=new_keys()) as looker,
        pytest.raises(NothingShown, match="is the key one that may look"),
    ):
        looker.look(MOMENT)
    assert there.effects.empty(), "nor did it get anything in"


def test_without_a_key_nothing_is_shown_by_a_swarm_that_has_some() -> None:
    with (
        peer(new_keys()) as there,
        Looker(there.transport.endpoint, bind=LOOPBACK) as looker,
        pytest.raises(NothingShown, match="does the swarm do without keys"),
    ):
        looker.look(MOMENT)
    assert there.effects.empty()


def test_an_impostor_with_another_key_is_not_asked() -> None:
    yours = new_keys()
    with (
        peer(new_keys(), lookers=[yours]) as there,
        Looker(there.transport.endpoint, bind=LOOPBACK, key=new_keys().public, keys=yours) as looker,
        pytest.raises(NothingShown),
    ):
        looker.look(MOMENT)
    assert there.effects.empty()


VALUES = np.ones(4)
#: What else could be said, each from rank 1, which is a member, or from nobody.
WORDS: Sequence[Message] = (
    Parcel(OTHER, ME, 0, 0, 0, 0.5, VALUES),
    Roll(OTHER, ME, b"whatever"),
    News(OTHER, ME, b"news", b"updates"),
    Fence(OTHER, ME),
    Hello(Address(1, 5), ME),
    Bye(OTHER, ME),
    Settled(OTHER, ME),
    Want(OTHER, ME, 0),
    Piece(OTHER, ME, 0, 2, 0, VALUES),
    Pass(OTHER, ME, 1, 0),
    Pull(OTHER, ME, 0, 0, 0.5),
    Ack(OTHER, ME, 0),
    Refusal(OTHER, ME, 0),
    Shown(Address(ANYBODY, 0), ME, b"shown"),
)


def send(transport: ZmqTransport, message: Message) -> None:
    frames = WireCodec(Settings().run, LAYOUT).encode(message)
    while not transport.send(0, frames):
        transport.wait(0.01)


@pytest.mark.parametrize("kind", sorted(set(Message.__args__) - {Look}, key=lambda kind: kind.__name__))
def test_no_kind_of_message_but_a_look_is_taken_from_a_looker(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that will come to be are refused too, so nothing but its kind is needed of a message."""
    message = object.__new__(kind)
    for name, address in (("origin", OTHER), ("destination", ME)):
        object.__setattr__(message, name, address)
    roster = Roster({0: 0, 1: 0}, lambda n: topologies.parse("ring", n))
    core = Core(ME, Mass(LAYOUT, np.ones(8)), roster, parse("osgp"), Settings())
    monkeypatch.setattr(core.outlet.codec, "decode", lambda _: message)
    (effect,) = core.handle(events.Received([b"whatever"], looks_only=True), 0.0)
    assert isinstance(effect, events.RejectedFrame)
    assert effect.reason is Reason.STRANGER


def test_a_key_for_looking_is_good_for_nothing_else() -> None:
    mine, yours = new_keys(), new_keys()
    with peer(mine, lookers=[yours]) as there:
        sender = ZmqTransport(LOOPBACK, keys=yours, admitted=[mine.public])
        try:
            sender.connect(0, there.transport.endpoint, mine.public)
            for word in WORDS:
                send(sender, word)
                effect = there.next()
                assert isinstance(effect, events.RejectedFrame), f"{type(word).__name__} came through: {effect}"
                assert effect.reason is Reason.STRANGER
                assert "good for looking only" in effect.detail
            send(sender, Look(Address(ANYBODY, 0), Address(ANYBODY, 0), str(sender.endpoint), yours.public.decode()))
            assert there.next() == events.Looked(str(sender.endpoint), yours.public.decode()), "but it may look"
        finally:
            sender.close()
    assert there.core.mass.weights == [1.0, 1.0]
    assert not there.core.inbox.nbytes
    assert there.core.me == ME, "the fence was not believed"
    assert dict(there.core.view.members) == {0: 0, 1: 0}, "nor the goodbye, nor the new life"
    assert there.core.rejections.total == len(WORDS)


def test_the_same_words_count_from_a_member() -> None:
    """Or the test above would show nothing."""
    mine, yours = new_keys(), new_keys()
    with peer(mine, members=[yours]) as there:
        sender = ZmqTransport(LOOPBACK, keys=yours, admitted=[mine.public])
        try:
            sender.connect(0, there.transport.endpoint, mine.public)
            send(sender, WORDS[0])
            assert isinstance(there.next(), events.Booked)
            send(sender, WORDS[3])
            assert isinstance(there.next(), events.Reincarnated)
        finally:
            sender.close()


def test_a_key_that_becomes_a_members_is_no_lookers_any_more() -> None:
    mine, yours = new_keys(), new_keys()
    with peer(mine, lookers=[yours], members=[yours]) as there:
        sender = ZmqTransport(LOOPBACK, keys=yours, admitted=[mine.public])
        try:
            sender.connect(0, there.transport.endpoint, mine.public)
            send(sender, WORDS[0])
            assert isinstance(there.next(), events.Booked)
        finally:
            sender.close()


def look_frames(body: bytes | None, kind: int = _LOOK) -> list[bytes]:
    return sealed([VERSION, "whatever", kind, ANYBODY, 0, ANYBODY, 0], body)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, Reason.TRUNCATED),
        (b"", Reason.MALFORMED),
        (b"127.0.0.1:5", Reason.MALFORMED),
        (b" ", Reason.MALFORMED),
        (b"127.0.0.1:5 short", Reason.MALFORMED),
        (b"127.0.0.1:5 " + b"a" * 41, Reason.MALFORMED),
        (b"127.0.0.1:5 " + b"\x00" * 40, Reason.MALFORMED),
        (b"127.0.0.1:5  ", Reason.MALFORMED),
        (b"127.0.0.1:99999 ", Reason.MALFORMED),
        (b"inproc://x ", Reason.MALFORMED),
        (b"nowhere ", Reason.MALFORMED),
        (b"\xff\xfe:5 ", Reason.MALFORMED),
        (b"a" * (17 << 10), Reason.OVERSIZED),
    ],
)
def test_a_look_that_cannot_be_answered_is_rejected(body: bytes | None, reason: Reason) -> None:
    with pytest.raises(Rejected) as caught:
        WireCodec("run", LAYOUT).decode(look_frames(body))
    assert caught.value.reason is reason


def test_whoever_looks_need_not_know_what_the_run_is_called() -> None:
    key = new_keys().public.decode()
    for text in ("127.0.0.1:5 ", f"[::1]:5 {key}"):
        message = WireCodec("run", LAYOUT).decode(look_frames(text.encode()))
        assert isinstance(message, Look)
        assert f"{message.endpoint} {message.key}" == text


def test_a_picture_that_nobody_asked_for_is_rejected() -> None:
    roster = Roster({0: 0, 1: 0}, lambda n: topologies.parse("ring", n))
    core = Core(ME, Mass(LAYOUT, np.ones(8)), roster, parse("osgp"), Settings())
    (effect,) = core.handle(events.Received(look_frames(b"picture", _SHOWN)), 0.0)
    assert isinstance(effect, events.RejectedFrame)
    assert effect.reason is Reason.STRANGER
