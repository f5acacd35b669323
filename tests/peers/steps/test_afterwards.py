"""An optimizer that goes on after its peer has ended is told once that it trains alone."""

from __future__ import annotations

import pytest
import torch
from swarms import LONGEST, swarm
from torch import nn

from gossip import presets
from peers import Peer

SENTENCE = "the optimizer makes a step after its peer has ended"


def pair() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def descend(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("algorithm", ["osgp", "allreduce"])
def test_steps_behind_the_with_statement_are_told_once(algorithm: str, caplog: pytest.LogCaptureFixture) -> None:
    pairs = [pair(), pair()]

    def body(peer: Peer) -> None:
        peer.attach(*pairs[peer.rank])
        descend(*pairs[peer.rank])
        peer.consensus(timeout=LONGEST)

    swarm(2, body, presets.preset("loopback"), algorithm=algorithm)
    assert SENTENCE not in caplog.text
    for _ in range(3):
        descend(*pairs[0])
    assert [text for text in caplog.messages if SENTENCE in text] == [
        text
        for text in caplog.messages
        if text.startswith(f"rank 0: {SENTENCE}: from here on this process trains alone")
    ]
    assert caplog.text.count(SENTENCE) == 1


def test_steps_for_the_next_peer_and_steps_without_others_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    pairs = [pair(), pair()]

    def body(peer: Peer) -> None:
        peer.attach(*pairs[peer.rank])
        descend(*pairs[peer.rank])
        peer.consensus(timeout=LONGEST)

    for _ in range(2):
        swarm(2, body, presets.preset("loopback"))
    single = pair()
    swarm(1, lambda peer: (peer.attach(*single), descend(*single)))
    descend(*single)
    assert SENTENCE not in caplog.text
