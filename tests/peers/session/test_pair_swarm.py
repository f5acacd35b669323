"""Sparse pairs between real engines: they train, agree, hand over, and say how they send."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from swarms import LONGEST, swarm
from torch import nn

from gossip import presets
from gossip.errors import SettingsError
from peers import Peer

SIZE = 400


class Point(nn.Module):
    """A vector in single precision and one in half, which are shards of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.zeros(SIZE))
        self.coarse = nn.Parameter(torch.zeros(SIZE, dtype=torch.bfloat16))


def test_peers_with_different_targets_meet_in_the_middle() -> None:
    """Each is drawn to its own rank; the others keep it near the mean of all, 1, and consensus ends at it."""
    together = threading.Barrier(3)

    def body(peer: Peer) -> tuple[float, float, float, int]:
        model = Point()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        peer.attach(model, optimizer)
        for _ in range(120):
            for parameter in model.parameters():
                parameter.grad = parameter.detach() - peer.rank
            together.wait(LONGEST)  # who is in consensus asks the others for whole shards
            optimizer.step()
        together.wait(LONGEST)
        strayed = float((model.at.detach() - 1).abs().mean())
        sent = peer._attached().session.driver.bytes_sent
        reached = peer.consensus(1e-3, LONGEST)
        return reached, float(model.at.detach().mean()), strayed, sent

    found = swarm(3, body, presets.preset("loopback"), algorithm="adpsgd", compress="topk-pair:share=25%")
    for reached, mean, strayed, sent in found:
        assert 0 <= reached <= 1e-3
        assert mean == pytest.approx(np.mean([mean for _, mean, _, _ in found]), abs=1e-2)
        assert strayed < 0.6, "alone, after 120 steps of 5%, two of the three would be off by 0.998"
        # A step has 7.02 bytes for each of 200 values in two shards, its answers the same; words and headers beside it.
        assert sent < 120 * 4000


def test_an_algorithm_that_cannot_is_refused_before_anybody_is_met() -> None:
    def body(peer: Peer) -> None:
        model = Point()
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))

    with pytest.raises(SettingsError, match="osgp does not average in pairs; use it with adpsgd or easgd"):
        swarm(1, body, presets.preset("loopback"), algorithm="osgp", compress="topk-pair")
