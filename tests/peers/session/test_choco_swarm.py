"""CHOCO between real engines: peers with different targets stay near each other, and consensus ends in agreement."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from swarms import LONGEST, patient, swarm
from torch import nn

from peers import Peer

SIZE = 400


class Point(nn.Module):
    """A vector in single precision and one in half, which are shards of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.zeros(SIZE))
        self.coarse = nn.Parameter(torch.zeros(SIZE, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("algorithm", "compress"),
    [
        ("choco", "sign"),
        ("local:h=4,tau=0,differences=true", "adacomp"),
        ("slowmo:h=4,differences=true", "topk:share=10%"),
        ("ssd:k=4,warmup=8,differences=true", "topk:share=10%"),
    ],
)
def test_peers_with_different_targets_meet_in_the_middle(algorithm: str, compress: str) -> None:
    """Each is drawn to its own rank; the others keep it near the mean of all, 1, and consensus ends at it."""

    def body(peer: Peer) -> tuple[float, float, float, int]:
        model = Point()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        peer.attach(model, optimizer)
        for _ in range(80):
            for parameter in model.parameters():
                parameter.grad = parameter.detach() - peer.rank
            assert peer._attached().session.driver.flush(
                LONGEST
            )  # while an answer is missing, a neighbour is told nothing new
            optimizer.step()
        strayed = float((model.at.detach() - 1).abs().mean())
        sent = peer._attached().session.driver.bytes_sent
        reached = peer.consensus(1e-3, LONGEST)
        return reached, float(model.at.detach().mean()), strayed, sent

    found = swarm(3, body, patient(), algorithm=algorithm, compress=compress, topology="complete")
    for reached, mean, strayed, sent in found:
        assert 0 <= reached <= 1e-3
        assert mean == pytest.approx(np.mean([mean for _, mean, _, _ in found]), abs=1e-2)
        assert strayed < 0.6, "alone, after 80 steps of 5%, two of the three would be off by 0.98"
        # To each of two, in each step, sign: 58 + 4 bytes for each of two shards; acknowledgements, words and headers
        # beside. The others exchange with every 4th step only, ssd after 8 of each.
        assert sent < 80 * 2 * 2 * 400


def test_when_one_leaves_a_cube_the_others_still_tell_each_other(tmp_path: Path) -> None:
    """There is no cube of three. Each of them is drawn to its own rank, so alone they would end 1 apart."""
    stays = threading.Barrier(3)

    def body(peer: Peer) -> tuple[float, str]:
        model = Point()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        peer.attach(model, optimizer)

        # All to the same step, or the last of them waits for others who make no more.
        while peer.step < 200 or 3 in peer.view:
            for parameter in model.parameters():
                parameter.grad = parameter.detach() - peer.rank
            optimizer.step()
            if peer.rank == 3 and peer.step == 10:
                return 0.0, ""
        found = float(model.at.detach().mean()), peer._attached().session.driver._core.view.roster.schedule.name
        stays.wait(LONGEST)  # who leaves changes the schedule of the others
        return found

    *found, _ = swarm(4, body, patient(), algorithm="choco", topology="hypercube", run_dir=str(tmp_path))
    assert {name for _, name in found} == {"bidirectional-ring"}
    middle = [value for value, _ in found]
    assert max(middle) - min(middle) < 0.7, middle
    for rank in range(3):
        assert "bidirectional-ring stands in" in (tmp_path / f"rank-{rank}" / "events.jsonl").read_text()
