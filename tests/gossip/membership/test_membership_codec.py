"""Bodies as bytes: all that is said comes back, and nothing else gets in."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import get_args

import msgpack
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from membership_hand import KEY, Hand, picture

from gossip.errors import Reason, Rejected
from gossip.membership import Record, State
from gossip.membership import body_codec as wire
from gossip.membership.bodies import (
    Behind,
    Digest,
    Errand,
    Holdings,
    JoinRequest,
    MemberNews,
    Nack,
    Ping,
    ProbeAck,
    Said,
    Taken,
    Update,
    Welcome,
)
from gossip.membership.body_kinds import BODY_KINDS
from gossip.membership.member_events import BodyReceived
from gossip.simulation.memberships import record_of
from topologies.draws import below, draw

ME = Record(4, 7, 2, endpoint="host:1")
SAID: list[Said] = [
    Ping(1),
    ProbeAck(2),
    Nack(3),
    Errand(4, 9),
    MemberNews(),
    Digest(bytes(range(256)) * 2, True),
    Holdings(),
    JoinRequest("host:5", KEY),
    Welcome(3),
    Behind(9),
    Taken("rank 3 is taken"),
]
UPDATES = [
    Update(Record(1, 2, 3, State.SUSPECT, "[::1]:5", KEY), (4, 6)),
    Update(Record(2, 0, 0, State.ALIVE, "b:6")),
    Update(Record(8, 9, 0, State.LEFT, "c:7")),
]
#: What version 1 of membership writes. Peers of other releases read it: it changes with that version only.
GOLDEN = json.loads(Path(__file__).with_name("golden_bodies.json").read_text())


@pytest.mark.parametrize("said", SAID, ids=lambda said: type(said).__name__)
def test_the_bytes_are_those_of_version_1(said: Said) -> None:
    packed = [wire.pack_update(update.record, update.accusers) for update in UPDATES]
    assert wire.encode(ME, said, packed).hex() == GOLDEN[type(said).__name__]


def test_everything_that_can_be_said_has_one_row_and_a_number_of_its_own() -> None:
    assert [kind.said for kind in BODY_KINDS] == list(get_args(Said))
    assert [kind.number for kind in BODY_KINDS] == list(range(len(BODY_KINDS)))
    for kind in BODY_KINDS:
        assert [field.name for field in kind.fields] == [field.name for field in fields(kind.said)], kind.name


def test_everything_that_can_be_said_has_golden_bytes() -> None:
    assert [type(said) for said in SAID] == list(get_args(Said))
    assert set(GOLDEN) == {kind.__name__ for kind in get_args(Said)}


@pytest.mark.parametrize("said", SAID, ids=lambda said: type(said).__name__)
def test_what_is_said_comes_back(said: Said) -> None:
    packed = [wire.pack_update(update.record, update.accusers) for update in UPDATES]
    found = wire.decode(wire.encode(ME, said, packed), 4)
    assert (found.incarnation, found.refutations) == (7, 2)
    assert found.said == said
    assert list(found.updates) == UPDATES


def test_slow_is_not_passed_on() -> None:
    packed = wire.pack_update(ME.become(State.SLOW))
    assert wire.decode_updates(wire.encode_updates([packed]))[0].record.state is State.ALIVE


def update(**change: object) -> list[object]:
    fields: dict[str, object] = {"rank": 1, "life": 0, "refutations": 0, "state": 0, "endpoint": "a:1", "key": ""}
    fields |= {"accusers": []} | change
    return list(fields.values())


PING = [1, 0, 0, 0, 5, []]

HOSTILE = {
    "empty": (b"", Reason.MALFORMED, "must be bytes"),
    "too long": (b"\x00" * (wire.BODY_LIMIT + 1), Reason.OVERSIZED, "limit"),
    "not msgpack": (b"\xc1\xff", Reason.MALFORMED, "must be msgpack"),
    "bytes behind": (msgpack.packb(PING) + b"\x00", Reason.MALFORMED, "must be msgpack"),
    "cut short": (msgpack.packb(PING)[:-1], Reason.MALFORMED, "must be msgpack"),
    "a map": (msgpack.packb({1: 2}), Reason.MALFORMED, "must be msgpack"),
    "a number": (msgpack.packb(7), Reason.MALFORMED, "must be an array, not 7"),
    "deep": (b"\x91" * 10_000 + b"\x00", Reason.MALFORMED, "must be msgpack"),
    "huge array": (b"\xdd\xff\xff\xff\xff", Reason.MALFORMED, "must be msgpack"),
    "no fields": (msgpack.packb([]), Reason.MALFORMED, "version"),
    "version as text": (msgpack.packb(["1", *PING[1:]]), Reason.MALFORMED, "version"),
    "version true": (msgpack.packb([True, *PING[1:]]), Reason.MALFORMED, "version"),
    "another version": (msgpack.packb([2, *PING[1:]]), Reason.VERSION, "version must be 1, not 2"),
    "no such kind": (
        msgpack.packb([1, 99, 0, 0, 5, []]),
        Reason.MALFORMED,
        "kind must be a whole number from 0 to 10, not 99",
    ),
    "negative kind": (msgpack.packb([1, -1, 0, 0, 5, []]), Reason.MALFORMED, "10, not -1"),
    "too few fields": (
        msgpack.packb([1, 0, 0, 0, []]),
        Reason.MALFORMED,
        "membership Ping: the body must have 6 fields, not 5",
    ),
    "too many fields": (
        msgpack.packb([1, 0, 0, 0, 5, 6, []]),
        Reason.MALFORMED,
        "membership Ping: the body must have 6 fields, not 7",
    ),
    "life as float": (
        msgpack.packb([1, 0, 0.0, 0, 5, []]),
        Reason.MALFORMED,
        "Ping: life must be a whole number from 0 to 9007199254740991, not 0.0",
    ),
    "life negative": (
        msgpack.packb([1, 0, -1, 0, 5, []]),
        Reason.MALFORMED,
        "life must be a whole number from 0 to 9007199254740991, not -1",
    ),
    "life huge": (msgpack.packb([1, 0, 1 << 53, 0, 5, []]), Reason.MALFORMED, "life must be"),
    "refutations true": (
        msgpack.packb([1, 0, 0, True, 5, []]),
        Reason.MALFORMED,
        "refutations must be a whole number from 0 to 9007199254740991, not True",
    ),
    "sequence as text": (
        msgpack.packb([1, 0, 0, 0, "5", []]),
        Reason.MALFORMED,
        "sequence must be a whole number from 0 to 9007199254740991, not '5'",
    ),
    "target huge": (
        msgpack.packb([1, 3, 0, 0, 5, 1 << 31, []]),
        Reason.MALFORMED,
        "Errand: target must be a whole number from 0 to 2147483647, not 2147483648",
    ),
    "digest short": (
        msgpack.packb([1, 5, 0, 0, b"x" * 511, True, []]),
        Reason.TRUNCATED,
        "Digest: sums must be 512 bytes, not 511",
    ),
    "digest long": (msgpack.packb([1, 5, 0, 0, b"x" * 513, True, []]), Reason.MALFORMED, "must be msgpack"),
    "digest as text": (
        msgpack.packb([1, 5, 0, 0, "x" * 100, True, []]),
        Reason.MALFORMED,
        "sums must be 512 bytes, not 'xx",
    ),
    "answer as number": (
        msgpack.packb([1, 5, 0, 0, b"x" * 512, 1, []]),
        Reason.MALFORMED,
        "answer must be True or False, not 1",
    ),
    "updates as text": (msgpack.packb([1, 0, 0, 0, 5, "no"]), Reason.MALFORMED, "updates must be an array, not 'no'"),
    "an update too short": (
        msgpack.packb([1, 0, 0, 0, 5, [[1, 2]]]),
        Reason.MALFORMED,
        "an update must be an array of 7 fields, not [1, 2]",
    ),
    "ask from nowhere": (msgpack.packb([1, 7, 0, 0, "nowhere", "", []]), Reason.MALFORMED, "endpoint"),
    "ask with no key": (msgpack.packb([1, 7, 0, 0, "a:1", "k", []]), Reason.MALFORMED, "public key"),
    "reason too long": (msgpack.packb([1, 10, 0, 0, "x" * 401, []]), Reason.MALFORMED, "must be msgpack"),
    **{
        f"update with {change}": (
            msgpack.packb([1, 0, 0, 0, 5, [update(), update(**change)]]),
            Reason.MALFORMED,
            next(iter(change)).replace("accusers", "accuser"),
        )
        for change in (
            {"rank": 1.0},
            {"rank": True},
            {"rank": -1},
            {"life": 1 << 53},
            {"refutations": "0"},
            {"state": 1},  # slow has no place on the wire
            {"state": 5},
            {"state": -1},
            {"endpoint": b"a:1"},
            {"endpoint": "a"},
            {"endpoint": "a:1\n"},
            {"key": None},
            {"key": "x"},
            {"accusers": 3},
            {"accusers": ["3"]},
            {"accusers": [-3]},
            {"accusers": list(range(17))},
        )
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_meant_is_rejected_by_name_and_changes_nothing(name: str) -> None:
    body, reason, words = HOSTILE[name]
    hand = Hand()
    before = picture(hand.one)
    hand.now += 50  # not even that we slept is noticed, since nothing is believed
    with pytest.raises(Rejected) as caught:
        hand.feed(BodyReceived(2, body))
    assert caught.value.reason is reason
    assert any(word in str(caught.value) for word in words.split("|")), caught.value
    assert picture(hand.one) == before


def test_our_own_rank_is_no_sender() -> None:
    hand = Hand()
    before = picture(hand.one)
    with pytest.raises(Rejected, match="stranger"):
        hand.say(0, Ping(1), record_of(1).become(State.DEAD))
    assert picture(hand.one) == before


def test_more_ranks_than_there_is_room_for_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossip.membership.membership.MEMBERS_LIMIT", 10)
    hand = Hand(n=8)
    before = picture(hand.one)
    with pytest.raises(Rejected, match="oversized: updates about more than 10 ranks"):
        hand.say(1, MemberNews(), *(record_of(rank) for rank in range(6, 12)))
    assert picture(hand.one) == before
    hand.say(1, MemberNews(), *(record_of(rank) for rank in range(6, 10)))
    assert hand.one.record(9) is not None


@pytest.mark.parametrize("body", [b"", b"\xc1", b"x" * (wire.BODY_LIMIT + 1), msgpack.packb([[1]]), msgpack.packb({})])
def test_hostile_news_of_the_layer_above_change_nothing(body: bytes) -> None:
    hand = Hand()
    before = picture(hand.one)
    with pytest.raises(Rejected):
        hand.one.absorb(body, hand.now)
    assert picture(hand.one) == before


def test_damaged_bodies_are_rejected_or_mean_something() -> None:
    packed = [wire.pack_update(update.record, update.accusers) for update in UPDATES]
    whole = [wire.encode(ME, said, packed) for said in SAID]
    hand = Hand()
    rejected = 0
    for number in range(20_000):
        body = bytearray(whole[number % len(whole)])
        for change in range(1 + number % 3):
            body[below(len(body), number, change)] = draw(number, change, 1) & 255
        if number % 5 == 0:
            del body[below(len(body), number, 9) :]
        before = picture(hand.one) if number % 50 == 0 else None
        try:
            hand.feed(BodyReceived(4, bytes(body)))
        except Rejected:
            rejected += 1
            assert before is None or picture(hand.one) == before
    assert rejected > 5_000


@examples(max_examples=300)
@given(st.recursive(st.none() | st.booleans() | st.integers(-1, 1 << 54) | st.text() | st.binary(), st.lists))
def test_any_msgpack_is_rejected_or_an_envelope(value: object) -> None:
    with suppress(Rejected):  # and nothing else
        wire.decode(msgpack.packb(value), 1)
