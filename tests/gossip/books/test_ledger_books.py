"""The exactly-once book: what was sent and not answered, and verdicts that never change."""

from __future__ import annotations

import pytest
from hand_swarm import parcel
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gossip.books.ledger import Outbox, Verdicts
from gossip.wire.messages import Address, Parcel

THERE = Address(1, 0)
WINDOW = 8


def sent(outbox: Outbox, to: Address = THERE, *, shard: int = 0, size: int = 1, at: float = 0.0) -> Parcel:
    """Book a parcel as sent and return it."""
    one = parcel(
        origin=0, sequence=outbox.next_sequence(to), value=[1.0] * size, shard=shard, destination=to, weight=0.5
    )
    outbox.add(one, at, at + 1.0)
    return one


def test_a_parcel_stays_until_it_is_removed() -> None:
    outbox = Outbox(100, WINDOW)
    one = sent(outbox)
    assert [entry.parcel for entry in outbox] == [one]
    assert len(outbox) == 1
    entry = outbox.remove(THERE, 0)
    assert entry is not None
    assert entry.parcel is one
    assert (len(outbox), list(outbox)) == (0, [])
    assert outbox.remove(THERE, 0) is None
    assert outbox.check() is None


@pytest.mark.parametrize(("to", "sequence"), [(THERE, 1), (Address(1, 1), 0), (Address(2, 0), 0)])
def test_an_answer_to_something_else_removes_nothing(to: Address, sequence: int) -> None:
    outbox = Outbox(100, WINDOW)
    sent(outbox)
    assert outbox.remove(to, sequence) is None
    assert len(outbox) == 1


def test_there_is_room_for_one_parcel_of_a_shard_within_the_budget() -> None:
    outbox = Outbox(24, WINDOW)
    assert outbox.room(THERE, 0, 1000), "the first may be of any size"
    sent(outbox, shard=0)
    assert not outbox.room(THERE, 0, 8), "the shard is on its way"
    assert outbox.room(THERE, 1, 16)
    assert not outbox.room(THERE, 1, 17)
    assert outbox.room(Address(2, 0), 0, 1000), "each neighbour has a budget of its own"
    outbox.remove(THERE, 0)
    assert outbox.room(THERE, 0, 8)


def test_the_window_is_counted_from_the_oldest_unanswered() -> None:
    outbox = Outbox(10_000, WINDOW)
    sent(outbox, shard=0)
    for shard in range(1, WINDOW):
        assert outbox.room(THERE, shard, 8)
        sent(outbox, shard=shard)
    assert not outbox.room(THERE, WINDOW, 8)
    outbox.remove(THERE, 3)
    assert not outbox.room(THERE, WINDOW, 8), "0 is still unanswered"
    outbox.remove(THERE, 0)
    assert outbox.room(THERE, WINDOW, 8)


def test_sequences_count_for_each_incarnation() -> None:
    outbox = Outbox(100, WINDOW)
    sent(outbox)
    outbox.remove(THERE, 0)
    assert outbox.next_sequence(THERE) == 1
    reborn = Address(1, 1)
    assert outbox.next_sequence(reborn) == 0
    sent(outbox, reborn)
    assert outbox.next_sequence(reborn) == 1


def test_what_went_to_a_former_life_must_be_taken_back_first() -> None:
    outbox = Outbox(100, WINDOW)
    sent(outbox)
    with pytest.raises(AssertionError, match="taken back first"):
        sent(outbox, Address(1, 1))


def test_removing_all_takes_what_went_to_one_rank() -> None:
    outbox = Outbox(100, WINDOW)
    ours = [sent(outbox, shard=0), sent(outbox, shard=1)]
    other = sent(outbox, Address(2, 0))
    assert outbox.remove_all(1) == ours
    assert [entry.parcel for entry in outbox] == [other]
    assert outbox.remove_all(1) == []
    assert outbox.remove_all(9) == []
    assert outbox.check() is None


def test_the_weight_on_its_way_is_for_each_shard_to_anybody() -> None:
    outbox = Outbox(100, WINDOW)
    sent(outbox, shard=0), sent(outbox, shard=1), sent(outbox, Address(2, 0), shard=0)
    assert [outbox.weight(shard) for shard in range(3)] == [1.0, 0.5, 0.0]


def test_the_first_resend_is_the_earliest() -> None:
    outbox = Outbox(100, WINDOW)
    assert outbox.resend_at is None
    sent(outbox, at=5.0)
    sent(outbox, Address(2, 0), at=3.0)
    assert outbox.resend_at == 4.0
    outbox.remove(Address(2, 0), 0)
    assert outbox.resend_at == 6.0


def test_verdicts_are_kept() -> None:
    received = Verdicts(WINDOW)
    assert received.verdict(0) is None
    received.add(0, booked=True)
    received.add(2, booked=False)
    assert [received.verdict(n) for n in range(4)] == [True, None, False, None]
    received.add(1, booked=True)
    assert [received.verdict(n) for n in range(4)] == [True, True, False, None]


def test_what_fits_is_within_a_window_of_the_first_that_is_missing() -> None:
    received = Verdicts(WINDOW)
    assert [n for n in range(20) if received.fits(n)] == list(range(8))
    received.add(1, booked=True)
    assert not received.fits(8)
    received.add(0, booked=True)
    assert [n for n in range(20) if received.fits(n)] == list(range(10))


class Link(RuleBasedStateMachine):
    """A sender that keeps its window, a network that reorders, doubles and loses, and a dict as the model."""

    def __init__(self) -> None:
        super().__init__()
        self.received = Verdicts(WINDOW)
        self.model: dict[int, bool] = {}
        self.next = 0
        self.unanswered: list[int] = []

    @precondition(lambda self: not self.unanswered or self.next - self.unanswered[0] < WINDOW)
    @rule()
    def send(self) -> None:
        self.unanswered.append(self.next)
        self.next += 1

    @precondition(lambda self: self.unanswered)
    @rule(data=st.data(), room=st.booleans(), answer_arrives=st.booleans())
    def arrive(self, data: st.DataObject, room: bool, answer_arrives: bool) -> None:
        sequence = data.draw(st.sampled_from(self.unanswered))
        verdict = self.received.verdict(sequence)
        assert verdict == self.model.get(sequence), "the same answer as the first time"
        if verdict is None:
            assert self.received.fits(sequence), "an honest sender is never outside of the window"
            self.received.add(sequence, room)
            self.model[sequence] = room
        if answer_arrives:
            self.unanswered.remove(sequence)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        # Whatever it was, and however old: it is not new.
        assert self.received.verdict(data.draw(st.sampled_from(sorted(self.model)))) is not None

    @rule(ahead=st.integers(0, 1000))
    def lie(self, ahead: int) -> None:
        sequence = self.next + ahead
        assert self.received.verdict(sequence) is None
        oldest = next(n for n in range(self.next + 1) if n not in self.model)
        assert self.received.fits(sequence) == (sequence < oldest + WINDOW)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.received._above) < WINDOW
        assert len(self.received._refused) <= WINDOW

    @invariant()
    def unanswered_verdicts_are_those_of_the_model(self) -> None:
        for sequence in self.unanswered:
            assert self.received.verdict(sequence) == self.model.get(sequence)


Link.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
TestLink = Link.TestCase
