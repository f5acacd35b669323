"""What the core throws away: counted, logged once a minute, and without a trace in the parameters."""

from __future__ import annotations

import sys

import pytest
from hand_swarm import CIRCLE, ONE_WAY, RUN, Hand, only, parcel, sealed

from gossip import events
from gossip.core.rejections import Rejections
from gossip.errors import Reason
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Ack, Address, Fence, Hello, Message, Pass, Refusal


def rejected(hand: Hand, rank: int, message: Message) -> Reason:
    """Tell a core something that it must reject, and check that its parameters stay as they are."""
    before = hand.bits(rank), len(list(hand.cores[rank].inbox)), len(hand.cores[rank].outbox)
    effects = hand.tell(rank, message)
    (frame,) = only(effects, events.RejectedFrame)
    assert before == (hand.bits(rank), len(list(hand.cores[rank].inbox)), len(hand.cores[rank].outbox))
    assert hand.cores[rank].rejections.by_reason[frame.reason] == frame.count
    return frame.reason


def two() -> Hand:
    return Hand(1.0, 3.0, algorithm="osgp", inbox_bytes=1000)


def test_a_frame_of_another_run() -> None:
    hand = two()
    before = hand.bits(0)
    frames = WireCodec("other", hand.layout).encode(parcel())
    (frame,) = only(hand.feed(0, events.Received(frames)), events.RejectedFrame)
    assert frame.reason is Reason.RUN
    assert "'other'" in frame.detail
    assert hand.bits(0) == before


def test_damage_is_counted_and_the_next_good_frame_still_works() -> None:
    hand = two()
    frames = hand.codec.encode(parcel())
    for count in (1, 2, 3):
        (frame,) = hand.feed(0, events.Received([bytes(frames[0]), b"\0" * 8]))
        assert (frame.reason, frame.count, frame.origin) == (Reason.CHECKSUM, count, 1)
    assert only(hand.feed(0, events.Received(frames)), events.Booked)
    assert hand.cores[0].rejections.by_reason == {Reason.CHECKSUM: 3}
    assert hand.cores[0].rejections.total == 3


@pytest.mark.parametrize(
    "message",
    [
        parcel(origin=9),
        Hello(Address(9, 0), Address(0, 0)),
        Fence(Address(9, 0), Address(0, 0)),
        Ack(Address(9, 0), Address(0, 0), 0),
        parcel(origin=0),
        Fence(Address(0, 5), Address(0, 0)),
        parcel(to=1),
        Pass(Address(1, 0), Address(9, 0), 0, 0),
    ],
    ids=repr,
)
def test_strangers_our_own_rank_and_letters_for_others(message: Message) -> None:
    hand = two()
    assert rejected(hand, 0, message) is Reason.STRANGER
    assert hand.cores[0].me == Address(0, 0)
    assert hand.cores[0].view.members == {0: 0, 1: 0}


def test_a_message_of_a_former_life_of_its_sender() -> None:
    hand = two()
    hand.feed(0, events.PeerAlive(Address(1, 2)))
    for message in (parcel(), Ack(Address(1, 1), Address(0, 0), 0), Hello(Address(1, 0), Address(0, 0))):
        assert rejected(hand, 0, message) is Reason.STALE
    assert not hand.post, "it is over, and nobody is left to tell"


@pytest.mark.parametrize(
    "message", [parcel(), Pass(Address(1, 0), Address(0, 0), 3, 0), Hello(Address(1, 0), Address(0, 0))]
)
def test_a_message_of_somebody_who_was_declared_dead(message: Message) -> None:
    hand = two()
    hand.feed(0, events.PeerDied(Address(1, 0)))
    assert rejected(hand, 0, message) is Reason.STALE
    # Who deals with us is told, even if it only passes, or it would never know. A hello is the answer to a fence.
    assert hand.mail() == ([] if isinstance(message, Hello) else [Fence(Address(0, 0), Address(1, 0))])


@pytest.mark.parametrize("incarnation", [0, 1, 3, 9])
def test_a_message_for_another_life_of_ours(incarnation: int) -> None:
    hand = two()
    for life in (0, 1):
        hand.tell(0, Fence(Address(1, 0), Address(0, life)))
    assert hand.cores[0].me == Address(0, 2)
    hand.post.clear()
    former = Address(0, incarnation)
    for message in (
        Ack(Address(1, 0), former, 0),
        Refusal(Address(1, 0), former, 0),
        Pass(Address(1, 0), former, 0, 0),
    ):
        assert rejected(hand, 0, message) is Reason.STALE
        assert not hand.post
    assert rejected(hand, 0, parcel(destination=former)) is Reason.STALE
    # The sender of a parcel to a former life learns who lives now, and takes it back.
    assert hand.mail() == ([Hello(Address(0, 2), Address(1, 0))] if incarnation < 2 else [])


def test_a_sequence_beyond_the_window() -> None:
    hand = two()
    window = 4 * hand.layout.shards + 64
    assert rejected(hand, 0, parcel(sequence=window)) is Reason.WINDOW
    assert rejected(hand, 0, parcel(sequence=2**52)) is Reason.WINDOW
    assert not hand.post, "no answer, or the sender would forget a parcel that nobody has"
    assert only(hand.tell(0, parcel(sequence=window - 1, weight=0.01)), events.Booked)
    # The window moves with the oldest sequence that is missing, not with the newest that came.
    assert rejected(hand, 0, parcel(sequence=window)) is Reason.WINDOW
    hand.tell(0, parcel(sequence=0, weight=0.01))
    assert only(hand.tell(0, parcel(sequence=window, weight=0.01)), events.Booked)


def test_a_duplicate_is_acknowledged_again_and_applied_once() -> None:
    hand = two()
    assert only(hand.tell(0, parcel()), events.Booked)
    for _ in range(3):
        (again,) = only(hand.tell(0, parcel()), events.Send)
        assert hand.read(again) == Ack(Address(0, 0), Address(1, 0), 0)
    hand.step(0)
    # Half is pushed after the merge: (1 + 0.25) / 2.
    assert hand.cores[0].mass.weights == [0.625]
    hand.post.clear()
    (after,) = only(hand.tell(0, parcel()), events.Send)
    assert hand.read(after) == Ack(Address(0, 0), Address(1, 0), 0)
    assert hand.cores[0].mass.weights == [0.625]


def test_a_refused_parcel_stays_refused_though_there_is_room_now() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[{0: {2: 0.5}}], algorithm="osgp", weight_cap=1.2)
    assert [type(effect) for effect in hand.tell(0, parcel(weight=0.5))] == [events.Refused, events.Send]
    hand.step(0)
    hand.tell(0, Ack(Address(2, 0), Address(0, 0), 0))
    assert hand.cores[0].mass.weights == [0.5]
    assert hand.cores[0].outbox.weight(0) == 0, "so there is room for it"
    hand.post.clear()
    (again,) = hand.tell(0, parcel(weight=0.5))
    assert hand.read(again) == Refusal(Address(0, 0), Address(1, 0), 0)
    assert only(hand.tell(0, parcel(weight=0.5, sequence=1)), events.Booked)


def test_an_answer_to_nothing_and_an_answer_again_do_nothing() -> None:
    hand = Hand(1.0, 3.0, turns=[ONE_WAY], algorithm="osgp")
    for answer in (Ack, Refusal):
        assert hand.tell(0, answer(Address(1, 0), Address(0, 0), 0)) == []
    hand.step(0)
    assert only(hand.tell(0, Ack(Address(1, 0), Address(0, 0), 0)), events.Released)
    before = hand.bits(0)
    assert hand.tell(0, Refusal(Address(1, 0), Address(0, 0), 0)) == []
    assert hand.tell(0, Ack(Address(1, 0), Address(0, 0), 0)) == []
    assert hand.bits(0) == before


def test_an_answer_counts_only_from_the_peer_that_the_parcel_went_to() -> None:
    hand = Hand(1.0, 3.0, 5.0, turns=[CIRCLE], algorithm="osgp")
    hand.step(0)
    assert hand.tell(0, Ack(Address(2, 0), Address(0, 0), 0)) == []
    assert hand.tell(0, Refusal(Address(2, 0), Address(0, 0), 0)) == []
    assert len(hand.cores[0].outbox) == 1


def log(hand: Hand, message: Message, now: float) -> bool:
    hand.now = now
    (frame,) = only(hand.tell(0, message), events.RejectedFrame)
    return frame.log


def test_the_same_peer_and_reason_are_logged_once_a_minute() -> None:
    hand = Hand(1.0, 3.0, 5.0, algorithm="osgp")
    far = 10_000
    assert log(hand, parcel(sequence=far), 0.0)
    assert not log(hand, parcel(sequence=far), 0.0)
    assert not log(hand, parcel(sequence=far), 59.999)
    assert log(hand, parcel(origin=2, sequence=far), 30.0), "another peer"
    assert log(hand, parcel(origin=1, to=2), 31.0), "another reason"
    assert log(hand, parcel(sequence=far), 60.0)
    assert not log(hand, parcel(sequence=far), 119.0)
    assert not log(hand, parcel(origin=2, sequence=far), 89.9)
    assert log(hand, parcel(origin=2, sequence=far), 90.0)
    assert hand.cores[0].rejections.by_reason == {Reason.WINDOW: 8, Reason.STRANGER: 1}


def test_a_liar_with_many_ranks_does_not_grow_memory() -> None:
    rejections = Rejections()
    logged = sum(rejections.add(Reason.STRANGER, rank, 0.0) for rank in range(50_000))
    assert logged <= 1024
    assert len(rejections._logged) <= 1024
    assert sys.getsizeof(rejections._logged) < 200_000
    assert rejections.by_reason == {Reason.STRANGER: 50_000}
    assert rejections.total == 50_000


def test_after_a_flood_others_are_logged_again_and_the_oldest_is_forgotten_first() -> None:
    rejections = Rejections()
    for rank in range(1024):
        assert rejections.add(Reason.STRANGER, rank, 0.0)
    assert rejections.add(Reason.STRANGER, 0, 60.0), "its minute is over"
    assert rejections.add(Reason.STRANGER, 5000, 60.0), "in the place of rank 1, whose line is the oldest"
    assert not rejections.add(Reason.STRANGER, 0, 61.0), "that is remembered: it was logged a second ago"
    assert len(rejections._logged) == 1024
    assert (1, Reason.STRANGER) not in rejections._logged


def test_a_liar_with_many_ranks_leaves_nothing_in_the_core() -> None:
    hand = two()
    for rank in range(2, 3000):
        hand.feed(0, events.Received(sealed([1, RUN, 4, rank, 0, 0, 0])))
    core = hand.cores[0]
    assert core.rejections.total == 2998
    assert core.view.members == {0: 0, 1: 0}
    assert not core.books.received
    assert len(core.history()) <= 64
