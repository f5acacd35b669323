"""Who is the first: one peer at a time, whoever dies, is stopped or has left because its training was over."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from swarms import LONGEST, Meeting

from gossip import presets
from peers import Peer
from peers.session.first import STOPPING, is_first

TRAINING = {"state": "training"}


@pytest.mark.parametrize(
    ("states", "rows", "first"),
    [
        ({}, {}, True),
        ({3: "alive"}, {}, True),
        ({1: "alive"}, {}, False),
        ({1: "suspect"}, {}, False),
        ({1: "slow"}, {}, False),
        ({0: "dead", 1: "dead"}, {}, True),
        ({0: "dead", 1: "alive"}, {}, False),
        ({0: "left", 1: "dead"}, {}, False),
        ({0: "left", 1: "dead"}, {0: TRAINING}, False),
        ({0: "left", 1: "dead"}, {0: {"state": STOPPING}}, True),
        ({0: "alive", 1: "dead"}, {0: {"state": STOPPING}}, False),
    ],
)
def test_the_lowest_rank_that_has_not_died_or_stopped_is_the_first(
    states: dict[int, str], rows: dict[int, dict[str, Any]], first: bool
) -> None:
    assert is_first(2, states, rows) is first


class Scene:
    """Three peers that train until the test is over, but for rank 0, which ends in its own way."""

    def __init__(self) -> None:
        self.meeting = Meeting(3, algorithm="osgp")
        self.before = threading.Barrier(3)
        self.gone, self.seen = threading.Event(), threading.Barrier(2)

    def attach(self, peer: Peer) -> torch.optim.SGD:
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        assert peer.is_first is (peer.rank == 0)
        peer.attach(model, optimizer)
        assert peer.is_first is (peer.rank == 0)
        self.before.wait(LONGEST)
        return optimizer

    def stays(self, peer: Peer, state: str) -> bool:
        optimizer = self.attach(peer)
        assert self.gone.wait(LONGEST)
        session = peer._attached().session
        while session.chronicle.states[0] != state:
            optimizer.step()
        if self.expected:
            while peer.rank == 1 and not peer.is_first:  # that rank 0 was stopped may be heard after it has left
                optimizer.step()
        found = peer.is_first
        self.seen.wait(LONGEST)
        return found

    def run(self, ends: Any, state: str, expected: bool) -> list[Any]:
        self.expected = expected
        preset = presets.preset("loopback")
        bodies = [ends, *[lambda peer: self.stays(peer, state)] * 2]
        return self.meeting.run(bodies, preset)


def test_when_the_first_dies_the_next_one_is_the_first() -> None:
    scene = Scene()

    def dies(peer: Peer) -> None:
        scene.attach(peer)
        peer._attached().session.driver.close()  # as if killed: no goodbye
        scene.gone.set()

    assert scene.run(dies, "dead", True)[1:] == [True, False]


def test_when_the_first_has_finished_nobody_else_becomes_the_first() -> None:
    scene = Scene()

    def finishes(peer: Peer) -> None:
        scene.attach(peer).step()
        peer.close()
        assert peer.is_first, "it still is, for what its script writes afterwards"
        scene.gone.set()

    assert scene.run(finishes, "left", False)[1:] == [False, False]


def test_when_the_first_is_stopped_the_next_one_is_the_first() -> None:
    scene = Scene()

    class Preempted(Exception):
        pass

    def stops(peer: Peer) -> None:
        scene.attach(peer).step()
        try:
            raise Preempted
        finally:
            scene.gone.set()

    results = scene.run(stops, "left", True)
    assert isinstance(results[0], Preempted)
    assert results[1:] == [True, False]
