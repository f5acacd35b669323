"""What a resumed script is told where it and its checkpoint differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from swarms import Meeting, swarm
from torch import nn

from peers import Peer
from peers.checkpoints.manifest import CheckpointError

Make = Callable[[nn.Module], torch.optim.Optimizer]


def steps(make: Make, size: int = 2, scheduled: bool = False) -> Callable[[Peer], float]:
    def body(peer: Peer) -> float:
        model = nn.Linear(size, 1)
        optimizer = make(model)
        also = {"scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)} if scheduled else {}
        peer.attach(model, optimizer, also)
        for _ in range(2):
            model(torch.ones(1, size)).sum().backward()
            optimizer.step()
            for one in also.values():
                one.step()
        return float(optimizer.param_groups[0]["lr"])

    return body


def sgd(rate: float) -> Make:
    return lambda model: torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.1)


def first(tmp_path: Path, body: Callable[[Peer], float], **setup: object) -> dict[str, object]:
    place: dict[str, object] = {"run_dir": str(tmp_path), "checkpoint_every": 1}
    swarm(1, body, **{**place, **setup})
    return {**place, "resume": True}


def test_another_learning_rate_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    again = first(tmp_path, steps(sgd(0.1)))
    assert swarm(1, steps(sgd(0.1)), **again) == [0.1]
    assert "learning rate" not in caplog.text
    assert swarm(1, steps(sgd(0.01)), **again) == [0.1]
    assert "sets a learning rate of 0.01 and the checkpoint has 0.1: the checkpoint's holds" in caplog.text


def test_what_a_scheduler_did_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    again = first(tmp_path, steps(sgd(0.1), scheduled=True))
    assert swarm(1, steps(sgd(0.1), scheduled=True), **again) == [0.1 / 16]
    assert "learning rate" not in caplog.text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (steps(adam), "of another optimizer than this Adam: it has dampening, momentum, nesterov and lacks amsgrad"),
        (steps(sgd(0.1), size=3), "model: the checkpoint does not fit this Linear"),
        (
            steps(lambda model: torch.optim.SGD([model.weight], lr=0.1)),
            "optimizer: the checkpoint does not fit this SGD",
        ),
    ],
)
def test_another_optimizer_or_model_is_refused(body: Callable[[Peer], float], words: str, tmp_path: Path) -> None:
    again = first(tmp_path, steps(sgd(0.1)))
    (error,) = Meeting(1, **again).run(body)
    assert isinstance(error, CheckpointError)
    assert words in str(error)


def test_state_of_an_algorithm_that_the_new_one_has_no_use_for_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    again = first(tmp_path, steps(sgd(0.1)), algorithm="slowmo:h=2")
    swarm(1, steps(sgd(0.1)), algorithm="osgp", **again)
    assert "the checkpoint has a different algorithm" in caplog.text


def test_a_run_that_was_over_says_so_when_it_is_resumed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def body(peer: Peer) -> float:
        model = nn.Linear(1, 1)
        optimizer = sgd(0.1)(model)
        peer.attach(model, optimizer)
        for x in peer.batches(torch.ones(4, 1), 2, 1):
            model(x).sum().backward()
            optimizer.step()
        peer.consensus()
        return peer.step

    again = first(tmp_path, body, checkpoint_every=2)
    assert "made no step" not in caplog.text
    assert swarm(1, body, **again) == [2]
    assert "training resumed at step 2 and made no step, because the checkpoint has seen all epochs" in caplog.text
