"""What a script logs is in the line of its step, in whichever order the loop logs and steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import peers
from peers import Peer
from peers.reporting.records import Records
from peers.reporting.step_line import StepLine

Body = Callable[[Peer, torch.optim.Optimizer, Iterator[Any]], None]


def before(peer: Peer, optimizer: torch.optim.Optimizer, batches: Iterator[Any]) -> None:
    for number, _ in enumerate(batches, 1):
        peer.log(loss=number)
        optimizer.step()


def after_twice(peer: Peer, optimizer: torch.optim.Optimizer, batches: Iterator[Any]) -> None:
    for number, _ in enumerate(batches, 1):
        optimizer.step()
        peer.log(loss=-1)
        peer.log(loss=torch.tensor(number))  # what is logged last counts


def after(peer: Peer, optimizer: torch.optim.Optimizer, batches: Iterator[Any]) -> None:
    for number, _ in enumerate(batches, 1):
        optimizer.step()
        peer.log(loss=number)


def recorded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "rank-0" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("body", "own_loop"),
    [(before, False), (after, False), (after_twice, False), (before, True), (after, True)],
)
def test_each_step_has_its_own_loss(tmp_path: Path, body: Body, own_loop: bool) -> None:
    with peers.join({}, run_dir=str(tmp_path)) as peer:
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        body(peer, optimizer, iter(range(5)) if own_loop else peer.batches(range(10), 2, 1))
        peer.log(accuracy=0.5)
    lines = recorded(tmp_path)
    assert [(line["step"], line["loss"]) for line in lines] == [(number, number) for number in range(1, 6)]
    assert [line.get("accuracy") for line in lines] == [None] * 4 + [0.5], "what comes last is not lost"


def test_a_line_has_the_time_of_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(str(tmp_path), 0, pytest.fail)
    line = StepLine(records)
    monkeypatch.setattr(records, "time", lambda: 7.0)
    line.finish({"step": 1})
    monkeypatch.setattr(records, "time", lambda: 8.0)
    line.log({"loss": 0.5})
    line.write()
    line.write()
    records.close()
    assert recorded(tmp_path) == [{"time": 7.0, "step": 1, "loss": 0.5}]


def test_what_is_logged_now_and_then_belongs_to_the_batch(tmp_path: Path) -> None:
    """Before the step, in every other batch: the line before it, which has no such value, is complete by then."""
    with peers.join({}, run_dir=str(tmp_path)) as peer:
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        for number, _ in enumerate(peer.batches(range(8), 2, 1), 1):
            if number % 2 == 0:
                peer.log(loss=number)
            optimizer.step()
    assert [line.get("loss") for line in recorded(tmp_path)] == [None, 2, None, 4]
