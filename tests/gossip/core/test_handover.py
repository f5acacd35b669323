"""A newcomer gets the state piece by piece, whatever is lost, doubled or late; donors keep on training."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hand_swarm import CIRCLE, Hand, Memory, only, parcel
from repeats import some

from gossip import events
from gossip.core.annex import Annex
from gossip.errors import Reason
from gossip.wire.limits import ANNEX_BYTES
from gossip.wire.messages import Address, Parcel, Piece, Want

STATE = [1.0, 2.0, 3.0, 4.0]
BLANK = [9.0] * 4
ANNEX = b"frozen and counted"


class Handing(Hand):
    """Cores at rest, of which the first have the state and the others nothing."""

    def __init__(self, *values: list[float], annex: bytes = ANNEX, donors: int = 1, block: int = 32) -> None:
        blank = bytes(len(annex))
        self.memories = [Memory(annex if rank < donors else blank, block) for rank in range(len(values))]
        annexes = [Annex(memory) for memory in self.memories]
        super().__init__(*values, turns=[CIRCLE], algorithm="osgp", shards=4, annexes=annexes)
        for rank in range(len(values)):
            self.feed(rank, events.Rest())
        for rank in range(donors):
            self.cores[rank].turns[:] = [5, 6, 7, 8]
            self.feed(rank, events.Donate())

    def annex(self, rank: int) -> bytes:
        return bytes(self.memories[rank].content)


start = Handing


def adopted(effects: list[events.Effect]) -> int:
    return len(only(effects, events.Adopted))


def has_state(hand: Hand, rank: int) -> bool:
    core = hand.cores[rank]
    return (core.mass.values.tolist(), core.mass.weights, core.turns) == (STATE, [1.0] * 4, [5, 6, 7, 8])


def pieces(hand: Hand) -> list[Piece]:
    return [one for one in hand.mail() if isinstance(one, Piece)]


def wants(hand: Hand) -> list[tuple[int, int]]:
    """Return who is asked for which piece."""
    return [(one.destination.rank, one.piece) for one in hand.mail() if isinstance(one, Want)]


def test_a_newcomer_ends_with_the_values_the_turns_and_a_weight_of_one() -> None:
    hand = start(STATE, BLANK)
    hand.feed(1, events.Adopt([0]))
    assert wants(hand) == [(0, 4)], "has it the same model?"
    assert adopted(hand.settle()) == 1
    assert hand.annex(1) == ANNEX
    assert has_state(hand, 1)
    assert hand.cores[1].deadline is None
    assert hand.cores[0].mass.values.tolist() == STATE, "pieces are copies"
    assert hand.cores[0].mass.weights == [1.0] * 4


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_pieces_may_come_in_any_order_get_lost_and_come_twice(seed: int) -> None:
    draw = random.Random(seed)
    hand = start(STATE, STATE, BLANK, annex=ANNEX * 100, donors=2)
    hand.feed(2, events.Adopt([0, 1]))
    found = 0
    for _ in range(10_000):
        if not hand.post:
            due = hand.cores[2].deadline
            if due is None:
                break
            hand.tick(2, due)
            continue
        send = hand.post.pop(draw.randrange(len(hand.post)))
        for _ in range(draw.choice([0, 1, 1, 2])):
            found += adopted(hand.feed(send.to.rank, events.Received(send.frames)))
    assert found == 1, "whole, once"
    assert hand.annex(2) == ANNEX * 100
    assert has_state(hand, 2)


def test_an_annex_of_several_pieces_is_put_together_in_order() -> None:
    annex = np.random.default_rng(0).bytes(2 * ANNEX_BYTES + 17)
    hand = start(STATE, BLANK, annex=annex, block=ANNEX_BYTES)
    hand.feed(1, events.Adopt([0]))
    while hand.post:  # the newest first
        send = hand.post.pop()
        hand.feed(send.to.rank, events.Received(send.frames))
    assert hand.annex(1) == annex


def test_only_a_few_pieces_are_asked_for_at_a_time() -> None:
    hand = Hand([1.0] * 40, [2.0] * 40, turns=[CIRCLE], algorithm="osgp", shards=40)
    for rank in range(2):
        hand.feed(rank, events.Rest())
    hand.feed(0, events.Donate())
    hand.feed(1, events.Adopt([0]))
    hand.deliver(Want)
    hand.deliver(Piece)
    asked = len(wants(hand))
    assert 1 < asked < 40
    hand.deliver(Want)
    hand.deliver(Piece)
    assert len(wants(hand)) == asked, "one came, and the next was asked for"
    assert adopted(hand.settle()) == 1
    assert hand.cores[1].mass.values.tolist() == [1.0] * 40


def test_asks_are_spread_over_the_donors_and_one_that_never_answers_is_replaced() -> None:
    hand = start(STATE, STATE, BLANK, annex=b"", donors=2)
    hand.feed(2, events.Adopt([0, 1]))
    hand.deliver(Want)
    hand.deliver(Piece)
    assert {rank for rank, _ in wants(hand)} == {0, 1}
    found = 0
    while not found:
        for send in list(hand.post):
            hand.post.remove(send)
            if send.to.rank != 0:  # nobody is at home at rank 0
                found += adopted(hand.feed(send.to.rank, events.Received(send.frames)))
        if not found and not hand.post:
            due = hand.cores[2].deadline
            assert due is not None
            assert due < 60, "it is asked for ever"
            hand.tick(2, due)
    assert has_state(hand, 2)


def test_a_donor_that_is_gone_is_replaced_as_well() -> None:
    hand = start(STATE, STATE, BLANK, donors=2)
    hand.feed(2, events.PeerDied(Address(0, 0)))
    hand.feed(2, events.Adopt([0, 1]))
    assert {rank for rank, _ in wants(hand)} == {1}
    found = adopted(hand.settle())
    while not found:
        due = hand.cores[2].deadline
        assert due is not None
        assert due < 60
        hand.tick(2, due)
        found += adopted(hand.settle())
    assert has_state(hand, 2)


def test_the_annex_comes_first_and_the_values_last_as_they_are_by_then() -> None:
    hand = start([0.0] * 4, BLANK, annex=ANNEX * 3)
    hand.feed(1, events.Adopt([0]))
    asked = []
    while wants(hand):
        asked.append(min(piece for _, piece in wants(hand)))
        hand.deliver(Want)
        if asked[-1] > 3:  # a donor that trains while it gives
            hand.cores[0].mass.values[:] = STATE
        hand.deliver(Piece)
    assert asked == [4, 5, 6, 0, 1, 2, 3]
    assert has_state(hand, 1)


def test_pieces_are_passed_on_before_the_state_is_whole() -> None:
    hand = start(STATE, BLANK, BLANK, annex=b"")
    hand.feed(1, events.Adopt([0]))
    hand.feed(2, events.Adopt([1]))
    hand.post.sort(key=lambda send: send.to.rank != 1)
    hand.deliver(Want)  # the second newcomer's ask comes to the first, which has nothing yet
    assert pieces(hand) == []
    hand.deliver(Want)  # of the first, at the donor
    hand.deliver(Piece)
    (passed,) = [one for one in pieces(hand) if one.destination.rank == 2]
    assert passed.origin.rank == 1
    assert passed.values.tolist() == [STATE[passed.piece]]
    assert adopted(hand.settle()) == 2
    assert has_state(hand, 2)


def test_a_donor_in_training_answers_at_its_step_boundary() -> None:
    hand = start(STATE, BLANK, annex=b"")
    hand.feed(1, events.Adopt([0]))
    hand.deliver(Want)
    hand.deliver(Piece)
    hand.feed(0, events.Resume())
    while wants(hand):
        hand.deliver(Want)
    assert pieces(hand) == [], "the values are the trainer's"
    hand.cores[0].mass.values[:] = [10.0, 20.0, 30.0, 40.0]
    hand.step(0)
    hand.lose(Parcel)
    assert {one.piece: one.values.tolist() for one in pieces(hand)} == {1: [20.0], 2: [30.0], 3: [40.0]}
    assert [one.turn for one in pieces(hand)] == [6, 7, 8], (
        "the turn that each comes to next: between two shards it gives"
    )
    hand.step(0)
    assert len(pieces(hand)) == 3, "once"


def test_a_piece_that_was_not_asked_for_changes_nothing() -> None:
    hand = start(STATE, BLANK)
    before = hand.bits(1)
    alien = Piece(Address(0, 0), Address(1, 0), 0, 6, 99, np.array([7.0]))
    assert adopted(hand.tell(1, alien)) == 0
    assert hand.bits(1) == before
    hand.feed(1, events.Adopt([0]))
    hand.settle()
    hand.tell(1, alien)
    assert has_state(hand, 1), "nor once the state is whole"
    assert hand.cores[1].turns == [5, 6, 7, 8]


def test_a_piece_of_no_such_number_is_not_asked_for_and_changes_nothing() -> None:
    hand = start(STATE, BLANK)
    hand.feed(1, events.Adopt([0]))
    before = hand.bits(1)
    hand.tell(1, Piece(Address(0, 0), Address(1, 0), 77, 78, 0, np.frombuffer(b"x", np.uint8)))
    assert hand.bits(1) == before
    assert adopted(hand.settle()) == 1


def test_a_shard_that_is_not_finite_is_given_to_nobody() -> None:
    hand = start([1.0, float("nan"), 3.0, 4.0], STATE, BLANK, donors=2)
    hand.feed(2, events.Adopt([0]))
    hand.settle()
    assert hand.cores[2].mass.values.tolist() == [1.0, 9.0, 3.0, 4.0]
    assert not hand.cores[2].rejections.by_reason[Reason.NOT_FINITE], "it was not even sent"
    hand.feed(2, events.Adopt([0, 1]))
    found = adopted(hand.settle())
    while not found:
        due = hand.cores[2].deadline
        assert due is not None
        assert due < 60
        hand.tick(2, due)
        found += adopted(hand.settle())
    assert has_state(hand, 2)


def test_who_has_nothing_gives_nothing_and_asks_for_no_more_than_there_is() -> None:
    hand = start(BLANK, BLANK, donors=0)
    hand.tell(0, Want(Address(1, 0), Address(0, 0), 0))
    assert pieces(hand) == []
    hand = start(STATE, BLANK)
    for piece in range(4, 8):
        hand.tell(0, Want(Address(1, 0), Address(0, 0), piece))
    assert [(one.piece, one.pieces) for one in pieces(hand)] == [(4, 6), (5, 6)], "the annex; there is no more"


def test_asks_that_are_kept_are_bounded() -> None:
    hand = start(STATE, BLANK)
    hand.feed(0, events.Resume())
    for piece in range(6000):
        hand.tell(0, Want(Address(1, 0), Address(0, 0), piece))
    assert len(hand.cores[0].handover._wanted) == 4096
    hand.step(0)
    assert len(pieces(hand)) == 6
    assert len(hand.cores[0].handover._wanted) == 0


def test_who_has_the_state_already_asks_nobody() -> None:
    hand = start(STATE, BLANK)
    hand.feed(0, events.Adopt([]))
    assert wants(hand) == []
    assert hand.cores[0].deadline is None


def test_mass_that_comes_before_the_state_is_not_lost() -> None:
    """A trainer pushes to the newcomer as soon as it knows of it."""
    hand = start(STATE, BLANK)
    hand.feed(1, events.Adopt([0]))
    total = hand.total()[0]
    for shard in range(4):
        hand.tell(1, parcel(0, 1, shard, shard=shard, weight=0.25, value=2.0))
    hand.settle()
    assert hand.total()[0] == pytest.approx(total + 4 * 0.25)


def test_each_donor_in_turn_is_asked_soon() -> None:
    """However often the one before was asked in vain: with three donors, the third after two times four seconds."""
    hand = start(STATE, STATE, STATE, BLANK, donors=3)
    hand.feed(3, events.Adopt([0, 1, 2]))
    asked: dict[int, float] = {}
    while len(asked) < 3:
        for rank, piece in wants(hand):
            if piece == 4:
                asked.setdefault(rank, hand.now)
        hand.lose(Want)
        due = hand.cores[3].deadline
        assert due is not None
        assert due < 10
        hand.tick(3, due)


def test_who_knows_no_donor_for_now_does_not_spin() -> None:
    hand = start(STATE, BLANK, donors=1)
    hand.feed(1, events.Adopt([0]))
    hand.feed(1, events.PeerDied(Address(0, 0)))
    for _ in range(3):
        due = hand.cores[1].deadline
        if due is None:
            return
        assert due >= hand.now
        before = hand.now
        hand.tick(1, due)
        assert hand.now > before or hand.cores[1].deadline is None or hand.cores[1].deadline > before
