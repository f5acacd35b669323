"""A script that trains something else than what it has attached is told so, once; others are left in peace."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from swarms import LONGEST, swarm
from torch import nn

from gossip import presets
from peers import Peer

Train = Callable[[Peer, nn.Module, torch.optim.Optimizer], object]


def descend(model: nn.Module, *optimizers: torch.optim.Optimizer, steps: int = 1) -> None:
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(torch.ones(2, 3)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def told(caplog: pytest.LogCaptureFixture, train: Train, algorithm: str = "osgp") -> list[str]:
    """Return what two peers are told of their steps, if each trains so."""

    def body(peer: Peer) -> None:
        model = nn.Linear(3, 1)
        optimizer = sgd(model)
        peer.attach(model, optimizer)
        train(peer, model, optimizer)
        peer.consensus(timeout=LONGEST)

    swarm(2, body, presets.preset("loopback"), algorithm=algorithm)
    said = [record.getMessage() for record in caplog.records]
    return [one for one in said if "attached" in one]


def copied_alone(_: Peer, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    descend(model, optimizer)  # a copy may be made at any time
    model, optimizer.param_groups[0]["lr"] = copy.deepcopy(model), 0.1
    for _step in range(5):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()


def copied_with_optimizer(_: Peer, model: nn.Module, _optimizer: torch.optim.Optimizer) -> None:
    model = copy.deepcopy(model)
    descend(model, sgd(model), steps=2)


def copied_later(_: Peer, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    descend(model, optimizer, steps=2)
    model = copy.deepcopy(model)
    descend(model, sgd(model), steps=120)


def another_optimizer(_: Peer, model: nn.Module, _optimizer: torch.optim.Optimizer) -> None:
    descend(model, torch.optim.Adam(model.parameters()), steps=2)


def another_optimizer_later(_: Peer, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    descend(model, optimizer)
    descend(model, torch.optim.Adam(model.parameters()), steps=12)
    descend(model, optimizer)


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (copied_alone, "had a gradient in 3 steps"),
        (copied_with_optimizer, "SGD, has moved parameters of the same shapes in 2 steps"),
        (copied_later, "SGD, has moved parameters of the same shapes in 100 steps"),
        (another_optimizer, "Adam, has moved its own parameters in 2 steps"),
        (another_optimizer_later, "Adam, has moved its own parameters in 10 steps"),
    ],
)
def test_a_script_that_trains_something_else_is_told_once(
    train: Train, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = told(caplog, train)
    assert len(said) == 2, "once at each of the two peers"
    assert all(words in one for one in said), said


def test_with_allreduce_any_step_of_another_optimizer_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def train(_: Peer, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        descend(model, optimizer, sgd(model))

    said = told(caplog, train, "allreduce")
    assert [one for one in said if "its own parameters in 1 steps" in one]


class Wrapping(torch.optim.Optimizer):
    """An optimizer whose step is that of another one over the same parameters."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        super().__init__([one for group in base.param_groups for one in group["params"]], {})
        self.base = base

    def step(self, _closure: object = None) -> None:  # type: ignore[override]
        self.base.step()


def test_what_is_right_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    def body(peer: Peer) -> None:
        torch.manual_seed(0)
        model, other = nn.Linear(3, 1), nn.Linear(2, 1)
        optimizer = Wrapping(sgd(model))
        peer.attach(model, optimizer)
        average = torch.optim.swa_utils.AveragedModel(model)
        adapted = copy.deepcopy(model)
        for _ in range(4):
            descend(model, optimizer, steps=6)
            average.update_parameters(model)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.999).clamp_(-1, 1)  # decay and clipping by hand
            adapted.load_state_dict(model.state_dict())
            descend(adapted, sgd(adapted), steps=20)
            model.load_state_dict(model.state_dict())
            model.eval()
            model(torch.ones(2, 3))
            model.train()
        tail = torch.optim.SGD(other.parameters(), lr=0.1)
        other(torch.ones(1, 2)).sum().backward()
        for _ in range(200):
            tail.step()
        descend(model, optimizer)
        peer.consensus(timeout=LONGEST)

    swarm(2, body, presets.preset("loopback"))
    assert "attached" not in caplog.text


def test_a_peer_that_attaches_and_does_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def body(peer: Peer) -> None:
        model = nn.Linear(3, 1)
        peer.attach(model, sgd(model))

    swarm(2, body, presets.preset("loopback"))
    assert caplog.text.count("made no step, and the peers did not agree either") == 2


def test_a_peer_that_takes_batch_after_batch_without_a_step_is_told_before_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def body(peer: Peer) -> None:
        model = nn.Linear(3, 1)
        peer.attach(model, sgd(model))
        for number, _ in enumerate(peer.batches(range(1200), 1, 1)):
            assert ("made no step" in caplog.text) == (number > 999)

    swarm(1, body, presets.preset("loopback"))
