"""What a peer tells its script: how far the swarm is, and the figures of each step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from swarms import swarm

from peers import Peer, PeerError
from peers.data.swarm_progress import SwarmProgress


def attach(peer: Peer) -> tuple[torch.nn.Linear, torch.optim.SGD]:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    peer.attach(model, optimizer)
    return model, optimizer


def step(model: torch.nn.Linear, optimizer: torch.optim.SGD) -> torch.Tensor:
    optimizer.zero_grad()
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    optimizer.step()
    return loss


def test_the_progress_is_that_of_all_peers_and_ends_at_one() -> None:
    def body(peer: Peer) -> list[SwarmProgress]:
        seen = [peer.progress]
        model, optimizer = attach(peer)
        for _ in peer.batches(range(50), 8, 2):
            step(model, optimizer)
            seen.append(peer.progress)
        seen.append(peer.progress)
        peer.consensus()
        for _ in peer.batches(range(10), 5, 1, drop_last=True):
            seen.append(peer.progress)
            break
        return seen

    for seen in swarm(2, body, algorithm="osgp"):
        assert seen[0] == SwarmProgress() == SwarmProgress(0.0, 0, 0, 0, 0, -1, 0.0)
        first = seen[1:-1]
        assert [one.fraction for one in first] == sorted(one.fraction for one in first)
        assert {(one.total_samples, one.epochs, one.loop, one.step_share) for one in first} == {(100, 2, 0, 0.0)}
        assert first[-1] == SwarmProgress(1.0, 100, 100, 2, 2, 0, 0.0)
        assert all(one.samples == round(100 * one.fraction) for one in first)
        if len(seen) > 3:
            assert seen[-1].loop in (0, 1), "the other one may have done all of the second loop"


def test_where_all_move_alike_a_step_is_a_share_of_the_loop() -> None:
    def body(peer: Peer) -> float:
        model, optimizer = attach(peer)
        shares = []
        for _ in peer.batches(range(48), 4, 1):
            step(model, optimizer)
            shares.append(peer.progress.step_share)
        assert set(shares) == {2 / 12}
        return shares[0]

    assert swarm(2, body, algorithm="allreduce") == [2 / 12] * 2


def test_figures_of_each_step_are_told_and_kept() -> None:
    def body(peer: Peer) -> None:
        told: list[dict[str, Any]] = []
        assert peer.metrics() == {}
        peer.on_step(told.append)
        model, optimizer = attach(peer)
        assert peer.metrics() == {}
        for _ in peer.batches(range(12), 3, 1):
            loss = step(model, optimizer)
            peer.log(loss=loss)
        assert [one["step"] for one in told] == list(range(1, peer.step + 1))
        assert [one["samples"] for one in told] == [3] * peer.step
        last = peer.metrics()
        assert last == {**told[-1], "loss": pytest.approx(float(loss.detach()))}
        assert last["total_samples"] == peer.samples
        assert last["peers"] == 2
        assert last["disagreement"] is None
        assert last["seconds"] >= last["wait_seconds"] >= 0
        assert last["bytes_sent"] > 0
        peer.consensus()
        assert 0 <= peer.metrics()["disagreement"] <= 1e-3

    swarm(2, body, algorithm="sgp")


def test_an_error_of_a_listener_reaches_the_script() -> None:
    def body(peer: Peer) -> None:
        model, optimizer = attach(peer)

        def fails(figures: dict[str, Any]) -> None:
            raise LookupError(figures["step"])

        with pytest.raises(PeerError, match="needs a function that takes the figures of a step, not 5"):
            peer.on_step(5)  # type: ignore[arg-type]
        peer.on_step(fails)
        with pytest.raises(LookupError, match="1"):
            step(model, optimizer)
        assert peer.step == 1

    swarm(1, body)
