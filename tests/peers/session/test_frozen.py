"""Frozen weights are compared before they are sent: equal ones never travel, and others in pieces."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from swarms import LONGEST, Meeting, swarm, together
from torch import nn

from gossip import presets
from peers import Peer

#: Elements of the large frozen matrix: 4 MiB, in four pieces.
_LARGE = 1 << 20
_PIECE = 1 << 20
#: Far more than all that is trained, counted, said and hashed takes, and far less than a frozen piece.
_LITTLE = 300_000


class Adapted(nn.Module):
    """A few trained weights on top of many frozen ones of every sort."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)  # peers are threads here, and share the global generator

        def fixed(values: torch.Tensor) -> nn.Parameter:
            return nn.Parameter(values, requires_grad=False)

        self.adapter = nn.Linear(8, 8)
        self.base = fixed(torch.randn(_LARGE, generator=draw))
        self.lighter = fixed(torch.randn(16, 8, generator=draw).to(torch.bfloat16))
        self.quantised = fixed(torch.randint(-128, 127, (33,), dtype=torch.int8, generator=draw))
        self.turned = fixed(torch.randn(512, 640, generator=draw).t())
        self.none = fixed(torch.zeros(0, 3))
        self.tied = fixed(self.lighter.data)
        self.register_buffer("mask", torch.ones(5, dtype=torch.bool))
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.adapter(x)) * self.base[0]


def train(peer: Peer, model: Adapted, steps: int = 2) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    peer.attach(model, optimizer)
    for _ in range(steps):
        step(model, optimizer)
    return optimizer


def step(model: Adapted, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.adapter.parameters():
        parameter.grad = torch.ones_like(parameter)
    model(torch.ones(4, 8))
    optimizer.step()


def sent(peer: Peer) -> int:
    return peer._attached().session.driver.bytes_sent


def received(peer: Peer) -> int:
    return peer._attached().session.driver.bytes_received


def frozen(model: Adapted) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters() if not tensor.requires_grad}


def attached(change: Callable[[int, Adapted], object] | None = None) -> Callable[[Peer], tuple[int, dict]]:
    """Return a body: attach a model that every rank changes, and return the bytes sent by then and what is frozen."""

    def body(peer: Peer) -> tuple[int, dict]:
        model = Adapted()
        if change is not None:
            with torch.no_grad():
                change(peer.rank, model)
        train(peer, model, steps=0)
        found = sent(peer), frozen(model)
        peer.consensus()  # nobody leaves before all are through
        return found

    return body


@pytest.mark.parametrize("algorithm", ["osgp", "allreduce", "parameter-server"])
def test_equal_peers_send_no_frozen_byte(algorithm: str) -> None:
    found = swarm(3, attached(), algorithm=algorithm)
    assert sum(bytes_sent for bytes_sent, _ in found) < _LITTLE


def test_only_what_differs_is_sent_and_all_get_it_from_the_lowest_rank() -> None:
    def change(rank: int, model: Adapted) -> None:
        if rank == 1:
            model.base[-1] += 1.0

    found = swarm(3, attached(change))
    total = sum(bytes_sent for bytes_sent, _ in found)
    assert _PIECE <= total < _PIECE + _LITTLE, "one piece, to one peer"
    for _, tensors in found:
        assert torch.equal(tensors["base"], Adapted().base)


def test_frozen_weights_of_every_sort_are_made_equal() -> None:
    def body(peer: Peer) -> dict:
        model = Adapted(seed=peer.rank)
        model.mask.fill_(peer.rank == 0)
        train(peer, model, steps=0)
        found = {**frozen(model), "mask": model.mask.clone()}
        peer.consensus()
        return found

    wanted = frozen(Adapted(seed=0))
    for tensors in swarm(3, body):
        assert tensors.pop("mask").all()
        assert tensors.keys() == wanted.keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, wanted[name]), name
            assert tensor.stride() == wanted[name].stride(), name


@pytest.mark.parametrize("differs", [False, True])
def test_a_peer_that_comes_back_gets_what_it_lacks_and_no_more(differs: bool) -> None:
    meeting = Meeting(2)
    died, done = threading.Event(), threading.Event()

    def stays(peer: Peer) -> dict:
        model = Adapted()
        optimizer = train(peer, model)
        assert died.wait(LONGEST)
        while not done.is_set():
            step(model, optimizer)
        return frozen(model)

    def comes_back() -> tuple[int, dict]:
        try:
            with meeting.peer(1, presets.preset("loopback")) as peer:
                train(peer, Adapted())
                peer._attached().session.driver.close()  # as if killed: no goodbye
            died.set()
            with meeting.peer(1, presets.preset("loopback"), incarnation=1000) as peer:
                model = Adapted(seed=int(differs))
                train(peer, model, steps=0)
                assert model.norm.num_batches_tracked > 0, "what changes comes as it is now"
                return received(peer), frozen(model)
        finally:
            died.set()
            done.set()

    wanted, (took, found) = together([meeting.task(0, stays, presets.preset("loopback")), comes_back])
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in found.items())
    if differs:
        assert took > 4 * _PIECE
    else:
        assert took < 4 * _LITTLE, "steps of rank 0 included"


def test_a_peer_without_a_checkpoint_gets_the_frozen_weights_of_one_that_resumes(tmp_path: Path) -> None:
    place = {"run_dir": str(tmp_path), "checkpoint_every": 1}
    swarm(1, lambda peer: train(peer, Adapted(seed=5)), **place)
    (tmp_path / "rank-0").rename(tmp_path / "rank-1")

    def resumes(peer: Peer) -> dict:
        model = Adapted(seed=6)
        train(peer, model, steps=0)
        peer.consensus()
        return frozen(model)

    wanted = frozen(Adapted(seed=5))
    for found in swarm(2, resumes, resume=True, **place):
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in found.items())
