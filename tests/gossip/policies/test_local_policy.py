"""`local`: a turn comes only with every h-th step."""

from __future__ import annotations

from hand_swarm import Hand

PAIR = {0: {1: 0.5}, 1: {0: 0.5}}


def test_nothing_is_pushed_between_two_turns() -> None:
    hand = Hand(0.0, 4.0, turns=[PAIR], algorithm="local:h=3,tau=0")
    pushed = []
    for _ in range(6):
        before = [len(core.outbox) for core in hand.cores]
        for rank in (0, 1):
            hand.step(rank)
        pushed.append([len(core.outbox) - old for core, old in zip(hand.cores, before, strict=True)])
        hand.settle()
    assert pushed == [[0, 0], [0, 0], [1, 1], [0, 0], [0, 0], [1, 1]]
    assert [core.turns for core in hand.cores] == [[2], [2]]
