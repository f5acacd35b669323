"""What is logged with `peer.log` is in the step's line, or refused by name before the step."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from swarms import swarm
from torch import nn

from peers import Peer, PeerError
from peers.reporting.logged import RESERVED


def logged(directory: Path, *values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of a run of one peer that logs these values, a step for each."""

    def body(peer: Peer) -> None:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        for one in values:
            peer._reporter._reported = -math.inf  # so that each step also reports to the other peers
            peer.log(**one)
            optimizer.step()

    swarm(1, body, run_dir=str(directory), tensorboard=True)
    return [json.loads(line) for line in (directory / "rank-0" / "metrics.jsonl").read_text().splitlines()]


def test_every_name_of_a_line_is_taken_and_no_other_is(tmp_path: Path) -> None:
    (line,) = logged(tmp_path, {"self": 1, "values": 2, "state": "x"})
    assert line.keys() - {"self", "values", "state"} == RESERVED - {"wait_share"}
    assert (line["self"], line["values"], line["state"]) == (1, 2, "x")

    def body(peer: Peer) -> None:
        for name in RESERVED:
            with pytest.raises(
                PeerError, match=f"of the step: {name}: the peer itself logs a value of this name: choose another"
            ):
                peer.log(**{name: 5, "loss": 0.1})

    swarm(1, body)


def test_numbers_of_all_kinds_are_logged_and_what_is_not_finite_becomes_null(tmp_path: Path) -> None:
    kinds = [
        (torch.tensor([0.5], requires_grad=True), 0.5),
        (torch.tensor(2, dtype=torch.int64), 2.0),
        (torch.tensor(0.25, dtype=torch.bfloat16), 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (True, True),
        (10**400, 10**400),
        ("high", "high"),
        (None, None),
        *((kind(value), None) for kind in (float, np.float32, torch.tensor) for value in (math.nan, math.inf)),
    ]
    lines = logged(tmp_path, *({"loss": value} for value, _ in kinds))
    assert [line["loss"] for line in lines] == [expected for _, expected in kinds]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (torch.zeros(2, 3), r"loss is a tensor of torch\.float32 with the shape \(2, 3\): log one real number"),
        (torch.zeros(0), r"with the shape \(0,\)"),
        (torch.zeros((), dtype=torch.complex64), r"loss is a tensor of torch\.complex64"),
        ([0.1, 0.2], "loss is a list: log a number, or text"),
        ({"a": 1}, "loss is a dict: log a number, or text"),
        (1 + 2j, "loss is a complex: log a number, or text"),
        (np.zeros(2), "loss is a ndarray: log a number, or text"),
    ],
)
def test_what_is_no_number_is_refused_by_name(value: Any, problem: str) -> None:
    def body(peer: Peer) -> None:
        with pytest.raises(PeerError, match=problem):
            peer.log(loss=value)

    swarm(1, body)


def test_what_is_logged_after_the_end_is_refused_and_not_lost_silently() -> None:
    left: list[Peer] = []
    swarm(1, left.append)
    with pytest.raises(PeerError, match="rank 0 has ended, and so have its records"):
        left[0].log(accuracy=0.9)
