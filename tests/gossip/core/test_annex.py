"""What newcomers get beside the values is compared first; what differs comes in blocks, each checked by its hash."""

from __future__ import annotations

import numpy as np
from hand_swarm import CIRCLE, Hand, Memory, only

from gossip import events
from gossip.core.annex import Annex
from gossip.errors import Reason
from gossip.wire.messages import Address, Piece, Want

BLOCK = 8
#: One shard, one piece of the list of hashes, and the blocks behind them.
LIST, FIRST = 1, 2
SAME = bytes(range(5 * BLOCK - 3))


class Annexed(Hand):
    """Cores at rest with an annex each; the first has the state."""

    def __init__(self, *contents: bytes, donors: int = 1) -> None:
        self.memories = [Memory(content, BLOCK) for content in contents]
        super().__init__(
            *[1.0] * len(contents),
            turns=[CIRCLE],
            algorithm="osgp",
            annexes=[Annex(memory) for memory in self.memories],
        )
        for rank in range(len(contents)):
            self.feed(rank, events.Rest())
        for rank in range(donors):
            self.feed(rank, events.Donate())

    def adopt(self, rank: int, *donors: int) -> None:
        self.feed(rank, events.Adopt(donors))

    def content(self, rank: int) -> bytes:
        return bytes(self.memories[rank].content)

    def asked(self, rank: int) -> list[int]:
        """Settle, and return the pieces that this rank asked for, in order."""
        found, adopted = [], 0
        while not adopted:
            while self.post:
                message = self.read(self.post[0])
                if isinstance(message, Want) and message.origin.rank == rank:
                    found.append(message.piece)
                mine = self.post[0].to.rank == rank
                effects = self.deliver()
                adopted += mine and len(only(effects, events.Adopted))
            if not adopted:
                due = self.cores[rank].deadline
                assert due is not None
                assert due < 100, "it is asked for ever"
                self.tick(rank, due)
        return found


def changed(content: bytes, *blocks: int) -> bytes:
    out = bytearray(content)
    for block in blocks:
        out[block * BLOCK] ^= 1
    return bytes(out)


def test_of_an_annex_that_is_the_same_only_the_hashes_are_asked_for() -> None:
    hand = Annexed(SAME, SAME)
    hand.adopt(1, 0)
    assert hand.asked(1) == [LIST, 0]


def test_only_blocks_that_differ_are_asked_for_the_short_last_one_too() -> None:
    hand = Annexed(SAME, changed(SAME, 1, 4))
    hand.adopt(1, 0)
    assert hand.asked(1) == [LIST, FIRST + 1, FIRST + 4, 0]
    assert hand.content(1) == SAME


def test_a_block_that_is_not_what_the_list_says_is_rejected_and_asked_of_another() -> None:
    """The second donor has other bytes than the list of the first; its blocks come with a good seal all the same."""
    hand = Annexed(SAME, changed(SAME, 2, 3), changed(SAME, 2, 3), donors=2)
    hand.adopt(2, 1, 0)
    while not any(isinstance(one, Want) and one.piece >= FIRST for one in hand.mail()):
        hand.deliver()
    hand.lose(Want)
    before = hand.content(2)
    for block in (2, 3):
        bad = np.frombuffer(changed(SAME, 2, 3)[block * BLOCK :][:BLOCK], np.uint8)
        hand.tell(2, Piece(Address(1, 0), Address(2, 0), FIRST + block, FIRST + 5, 0, bad))
        assert hand.content(2) == before
    assert hand.cores[2].rejections.by_reason[Reason.CHECKSUM] == 2
    hand.asked(2)
    assert hand.content(2) == SAME


def test_pieces_of_another_length_or_another_number_are_rejected() -> None:
    hand = Annexed(SAME, changed(SAME, 0))
    hand.adopt(1, 0)
    before, wrong = hand.content(1), Reason.SHAPE
    short = np.zeros(16 * 4, np.uint8)
    hand.tell(1, Piece(Address(0, 0), Address(1, 0), LIST, FIRST + 5, 0, short))
    hand.tell(1, Piece(Address(0, 0), Address(1, 0), LIST, FIRST + 4, 0, np.zeros(16 * 5, np.uint8)))
    assert hand.cores[1].rejections.by_reason[wrong] == 2
    while not any(isinstance(one, Want) and one.piece == FIRST for one in hand.mail()):
        hand.deliver()
    hand.tell(1, Piece(Address(0, 0), Address(1, 0), FIRST, FIRST + 5, 0, np.zeros(BLOCK - 1, np.uint8)))
    assert hand.cores[1].rejections.by_reason[wrong] == 3
    assert hand.content(1) == before
    hand.asked(1)
    assert hand.content(1) == SAME


def test_what_has_changed_since_attach_comes_as_it_is_now() -> None:
    hand = Annexed(SAME, SAME)
    hand.feed(0, events.Resume())
    hand.step(0)
    hand.memories[0].content[:] = now = changed(SAME, 0, 3)
    hand.step(0)
    hand.feed(0, events.Rest())
    hand.adopt(1, 0)
    assert hand.asked(1)[:3] == [LIST, FIRST, FIRST + 3]
    assert hand.content(1) == now


def test_what_changes_while_it_is_handed_over_keeps_nobody_out() -> None:
    """The block is another one with every step, so it never is what the list says."""
    hand = Annexed(SAME, changed(SAME, 0))
    hand.adopt(1, 0)
    while not any(isinstance(one, Want) and one.piece == FIRST for one in hand.mail()):
        hand.deliver()
    hand.memories[0].content[1] ^= 1
    hand.asked(1)
    assert hand.content(1) == hand.content(0) != SAME
    assert not hand.cores[1].rejections.by_reason


def test_who_still_adopts_passes_on_what_it_has() -> None:
    hand = Annexed(SAME, changed(SAME, 1), changed(SAME, 1, 2))
    hand.adopt(1, 0)
    while not any(isinstance(one, Want) and one.piece == FIRST + 1 for one in hand.mail()):
        hand.deliver()
    kept, hand.post = hand.post, []
    hand.adopt(2, 1)
    hand.deliver(Want)
    hand.deliver(Piece)
    assert sorted(one.piece for one in hand.mail() if isinstance(one, Want)) == [FIRST + 1, FIRST + 2]
    hand.settle()
    assert hand.content(2) == changed(SAME, 1), "the second block is lacking at both, the third came"
    hand.post = kept
    hand.asked(2)
    assert hand.content(2) == SAME
