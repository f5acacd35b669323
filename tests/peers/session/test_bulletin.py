"""What peers tell each other: merged in any order, as often as it comes, and hostile bytes change nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossip.errors import SettingsError
from gossip.wire.limits import NEWS_LIMIT
from peers.session.bulletin import Agreement, Bulletin, RollCall
from peers.table.lives import LIVES_APART
from peers.table.status_rows import Rows

WHATS = ("here", "state", "mixing")
reaches = st.lists(st.tuples(st.sampled_from(WHATS), st.integers(0, 6), st.integers(1, 9)), max_size=12)


def roll_of(notes: list[tuple[str, int, int]]) -> RollCall:
    roll = RollCall()
    for what, rank, level in notes:
        roll.reach(what, rank, level)
    return roll


def known(roll: RollCall) -> dict[tuple[str, int], set[int]]:
    return {(what, level): roll.ranks(what, level) for what in WHATS for level in range(1, 10)}


@given(st.lists(reaches, min_size=1, max_size=4), st.randoms())
def test_a_roll_call_is_the_same_in_whatever_order_it_is_heard(parts: list, random: object) -> None:
    rolls = [roll_of(part) for part in parts]
    letters = [roll.encode() for roll in rolls]
    shuffled = letters * 2
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = RollCall(), RollCall()
    for letter in letters:
        one.merge(letter)
    for letter in shuffled:
        other.merge(letter)
    expected = roll_of([note for part in parts for note in part])
    assert known(one) == known(other) == known(expected)
    for roll in rolls:
        roll.merge(one.encode())
        assert known(roll) == known(expected)


@given(reaches, reaches)
def test_merging_tells_whether_something_was_new(ours: list, theirs: list) -> None:
    roll = roll_of(ours)
    before = known(roll)
    grown = roll.merge(roll_of(theirs).encode())
    assert grown == (known(roll) != before)
    assert not roll.merge(roll_of(theirs).encode()), "heard twice, new once"
    for key, ranks in before.items():
        assert ranks <= known(roll)[key], "levels only grow"


def test_levels_and_the_highest() -> None:
    roll = roll_of([("mixing", 3, 2), ("mixing", 1, 5), ("mixing", 3, 1)])
    assert roll.ranks("mixing") == {1, 3}
    assert roll.ranks("mixing", 2) == {1, 3}
    assert roll.ranks("mixing", 3) == {1}
    assert roll.highest("mixing") == 5
    assert (roll.highest("here"), roll.ranks("here")) == (0, set())


HOSTILE = [
    b"",
    b"\xc1",
    b"\x81",
    b"\x91" * 2000,
    b"\x81\xa1a" * 3000,
    msgpack.packb([1, 2]),
    msgpack.packb("here"),
    msgpack.packb({"here": 1}),
    msgpack.packb({"here": {"a": 1}}),
    msgpack.packb({"here": {1: -1}}),
    msgpack.packb({"here": {-1: 1}}),
    msgpack.packb({"here": {1: True}}),
    msgpack.packb({"here": {1: 1.5}}),
    msgpack.packb({"here": {1: 1 << 40}}),
    msgpack.packb({"here": {2: 1}, "state": {1: None}}),
    msgpack.packb({1: {1: 1}}),
    msgpack.packb({str(number): {1: 1} for number in range(65)}),
    msgpack.packb({"here": dict.fromkeys(range(100_000, 104_000), 1)}),
    b"\x81\x81\x01\x01\x01",
    b"\x81\xa1\xff\x80",
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bytes_change_no_roll_call(data: bytes) -> None:
    roll = roll_of([("here", 1, 1)])
    before = roll.encode()
    with pytest.raises(ValueError, match=r"not msgpack|not a map|a roll call"):
        roll.merge(data)
    assert roll.encode() == before


@given(st.binary(max_size=200))
def test_any_bytes_are_merged_or_refused(data: bytes) -> None:
    roll = roll_of([("here", 1, 1)])
    try:
        roll.merge(data)
    except ValueError:
        assert roll.encode() == roll_of([("here", 1, 1)]).encode()
    assert 1 in roll.ranks("here")


def test_a_roll_call_of_several_hundred_ranks_fits_into_the_news() -> None:
    roll = RollCall()
    everybody = [(what, rank, 2) for what in ("here", "state", "mixing", "agreed", "known") for rank in range(300)]
    assert roll.merge(roll_of(everybody).encode())
    assert len(roll.encode()) < NEWS_LIMIT // 2


def test_reaching_and_merging_at_the_same_time_loses_nothing() -> None:
    roll = RollCall()
    letters = [roll_of([("theirs", rank, 1)]).encode() for rank in range(400)]

    def hear() -> None:
        for letter in letters:
            roll.merge(letter)

    thread = threading.Thread(target=hear)
    thread.start()
    for rank in range(400):
        roll.reach("ours", rank)
    thread.join()
    assert roll.ranks("ours") == roll.ranks("theirs") == set(range(400))


class Post:
    """A bulletin, and what it published and warned of."""

    def __init__(self) -> None:
        self.published: list[bytes] = []
        self.fresh: list[bytes] = []
        self.warnings: list[str] = []
        self.now = 0.0
        self.board = Bulletin(self._send, self.warnings.append, clock=lambda: self.now)
        self.roll = RollCall()
        self.board.add("roll", self.roll)

    def _send(self, body: bytes, fresh: bytes) -> None:
        self.published.append(body)
        self.fresh.append(fresh)


def test_a_topic_is_fresh_for_a_while_after_it_has_grown_and_the_status_never_is() -> None:
    post, status = Post(), Rows(0)
    post.board.add("status", status, calm=True)
    post.now = 100.0
    status.note(0, step=1)
    post.board.publish()
    assert post.fresh[-1] == b"", "nothing else has grown for long"
    post.roll.reach("here", 0)
    post.board.publish()
    post.board.publish()
    assert msgpack.unpackb(post.fresh[-1]).keys() == {"roll"}
    assert msgpack.unpackb(post.published[-1]).keys() == {"roll", "status"}
    other = Post()
    other.board.hear(post.fresh[-1])
    assert other.roll.ranks("here") == {0}
    post.now += 10.0
    post.board.publish()
    assert post.fresh[-1] == b""


def test_two_bulletins_come_to_know_the_same() -> None:
    one, other = Post(), Post()
    one.roll.reach("here", 1)
    other.roll.reach("here", 2)
    one.board.publish()
    other.board.hear(one.published[-1])
    assert other.roll.ranks("here") == {1, 2}
    one.board.hear(other.published[-1])
    assert one.roll.ranks("here") == {1, 2}


def test_what_is_new_is_passed_on_and_what_is_known_is_not() -> None:
    one, other = Post(), Post()
    one.roll.reach("here", 1)
    one.board.publish()
    other.board.hear(one.published[-1])
    assert len(other.published) == 2
    other.board.hear(one.published[-1])
    assert len(other.published) == 2


def test_a_topic_that_others_come_to_first_is_kept_for_later() -> None:
    one, other = Post(), Post()
    data = RollCall()
    data.reach("done", 4)
    one.board.add("data-0", data)
    other.board.hear(one.published[-1])
    assert other.board.early() == {"data-0"}
    late = RollCall()
    other.board.add("data-0", late)
    assert late.ranks("done") == {4}
    assert other.board.early() == set()


def test_a_topic_that_was_removed_is_not_told_of_any_more() -> None:
    post = Post()
    post.board.add("data-0", RollCall())
    post.board.remove("data-0")
    post.board.remove("never")
    post.board.publish()
    assert msgpack.unpackb(post.published[-1]).keys() == {"roll"}


def test_topics_nobody_has_come_to_are_bounded_and_the_newest_stay() -> None:
    post = Post()
    for number in range(200):
        post.board.hear(msgpack.packb({f"data-{number}": b""}))
    assert post.board.early() == {f"data-{number}" for number in range(136, 200)}


BODIES = [*HOSTILE, msgpack.packb({"roll": 5}), msgpack.packb({"roll": {"here": 1}}), msgpack.packb({"a": b"", "b": 1})]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_hostile_news_change_nothing_and_are_warned_of(body: bytes) -> None:
    post = Post()
    post.board.hear(body)
    assert post.warnings
    assert "malformed news were dropped" in post.warnings[0]
    assert post.board.early() == set()
    assert len(post.published) == 1


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_a_topic_that_makes_no_sense_does_not_spoil_the_others(data: bytes) -> None:
    post, sound = Post(), RollCall()
    sound.reach("here", 3)
    other = RollCall()
    post.board.add("other", other)
    post.board.hear(msgpack.packb({"roll": data, "other": sound.encode()}))
    assert post.roll.ranks("here") == set()
    assert other.ranks("here") == {3}
    assert "malformed news about roll were dropped" in post.warnings[0]


@given(st.binary(max_size=300))
def test_any_news_leave_the_bulletin_alive(body: bytes) -> None:
    post = Post()
    post.roll.reach("here", 1)
    post.board.hear(body)
    post.board.publish()
    assert 1 in post.roll.ranks("here")


def test_hostile_news_cannot_make_ours_too_long() -> None:
    post = Post()
    for number in range(40):
        ranks = range(1000 * number, 1000 * number + 1000)
        post.board.hear(msgpack.packb({"roll": msgpack.packb({"here": dict.fromkeys(ranks, 1)})}))
    post.board.publish()
    assert len(post.published[-1]) <= NEWS_LIMIT
    assert post.warnings


def test_news_beyond_the_limit_are_an_error_here() -> None:
    post = Post()
    with pytest.raises(SettingsError, match=f"{NEWS_LIMIT} is the limit"):
        post.board.add("long", Agreement("x" * NEWS_LIMIT, 0))


def test_an_agreement_notices_who_differs() -> None:
    agreement = Agreement("model A", 3)
    assert not agreement.merge(Agreement("model A", 0).encode())
    assert agreement.conflict is None
    with pytest.raises(ValueError, match="no rank"):
        agreement.merge(b"model A")
    assert not agreement.merge(b"2 model \xff")
    assert agreement.conflict == 2
    agreement.merge(Agreement("model A", 1).encode())
    assert agreement.conflict == 2, "once is enough"


def waiting(post: Post, predicate: Callable[[], bool]) -> tuple[threading.Thread, list[bool]]:
    """Start to wait, and return when the wait has begun."""
    begun, found = threading.Event(), []

    def looked() -> bool:
        begun.set()
        return predicate()

    thread = threading.Thread(target=lambda: found.append(post.board.wait_for(looked, 60.0)))
    thread.start()
    assert begun.wait(60.0)
    return thread, found


def test_who_waits_is_woken_by_what_is_heard() -> None:
    post, other = Post(), Post()
    thread, found = waiting(post, lambda: 5 in post.roll.ranks("here"))
    other.roll.reach("here", 5)
    other.board.publish()
    post.board.hear(other.published[-1])
    thread.join(60.0)
    assert found == [True]


def test_who_waits_is_woken_by_wake_and_by_publish() -> None:
    post = Post()
    there: list[int] = []
    thread, found = waiting(post, lambda: len(there) > 0)
    there.append(1)
    post.board.wake()
    thread.join(60.0)
    assert found == [True]
    thread, found = waiting(post, lambda: 2 in post.roll.ranks("here"))
    post.roll.reach("here", 2)
    post.board.publish()
    thread.join(60.0)
    assert found == [True]


def test_a_wait_ends_in_time() -> None:
    assert not Post().board.wait_for(lambda: False, 0.01)


def test_what_is_wrong_is_told_once_however_often_it_comes() -> None:
    warnings: list[str] = []
    bulletin = Bulletin(lambda *_: None, warnings.append)
    bulletin.add("roll", RollCall())
    for _ in range(3):
        bulletin.hear(b"nothing")
        bulletin.hear(msgpack.packb({"roll": b"nothing"}))
    assert len(warnings) == 2
    for number in range(1000):
        bulletin.hear(msgpack.packb({"roll": msgpack.packb({"here": number})}))
        bulletin.hear(msgpack.packb([number]))
    assert len(warnings) < 80


def test_a_rank_that_is_started_again_has_come_to_nothing_yet() -> None:
    """Others that counted on what its former process has done would go on without it."""
    others, first = RollCall(rank=0), RollCall(rank=1)
    first.reach("mixing", 1, 2)
    others.merge(first.encode())
    assert others.ranks("mixing", 2, {0: 0, 1: 3}) == {1}, "declared dead three times, and the same process"
    assert others.ranks("mixing", 2, {0: 0, 1: LIVES_APART}) == set(), "a new process, which has said nothing yet"
    again = RollCall(rank=1, life=LIVES_APART)
    again.merge(others.encode())
    assert (again.ranks("mixing"), again.former("mixing"), again.former("here")) == (set(), 2, 0)
    again.reach("here", 1)
    assert others.merge(again.encode())
    assert (others.ranks("mixing"), others.ranks("here")) == (set(), {1})
    assert not others.merge(first.encode()), "late news of the former life"
    again.reach("mixing", 1, 3)
    others.merge(again.encode())
    assert others.ranks("mixing", 3, {0: 0, 1: LIVES_APART}) == {1}


def test_a_life_that_began_before_the_former_one_counts_all_the_same() -> None:
    """The clock of the machine went back between two starts."""
    others, again = RollCall(rank=0), RollCall(rank=1, life=5000)
    former = RollCall(rank=1, life=9000)
    former.reach("mixing", 1)
    others.merge(former.encode())
    again.reach("here", 1)
    others.merge(again.encode())
    assert others.ranks("here") == set()
    again.merge(others.encode())
    others.merge(again.encode())
    assert (others.ranks("here"), others.ranks("mixing")) == ({1}, set())
