"""One process of a grid: a real model, split as the planner says, in steps that are timed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import peers
from benchmarks.grid_splits import part_of, spread_over
from benchmarks.meeting import Meeting
from benchmarks.processes import Answer
from gossip import presets
from peers.planner.model_reading import InputShape, example_batch

__all__ = ["MODELS", "SHAPES", "grid"]

#: Seconds: far more than a step takes.
_PATIENCE = 60.0


def mlp() -> nn.Sequential:
    """Return a pair of linear layers of 2.1 MB: traffic of weights and of activations can both be the larger."""
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))


def conv() -> nn.Sequential:
    """Return a small network over images whose weights are mostly in its linear layers."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(32 * 8 * 8, 256), nn.ReLU(), nn.Linear(256, 64)),
    )


MODELS: dict[str, Callable[[], nn.Sequential]] = {"mlp": mlp, "conv": conv}
SHAPES = {"mlp": InputShape([256]), "conv": InputShape([3, 32, 32])}


def grid(rank: int, n: int, task: dict[str, Any]) -> Answer:
    """Train for some steps on a grid.

    The task says ``model``, ``kind``, ``batch`` (of all replicas), ``steps`` and ``warmup`` (steps that are not
    counted), and ``setup``, which has the grid. With ``in_step`` all begin each step together; what a process waits for
    the others then is not part of its step.
    """
    environment = {
        "RANK": str(rank),
        "WORLD_SIZE": str(n),
        "MASTER_ADDR": task["address"],
        "MASTER_PORT": str(task["port"]),
    }
    os.environ["GLOO_SOCKET_IFNAME"] = task["interface"]  # the name of this host leads to loopback in all namespaces
    torch.manual_seed(0)
    _wait_for_all()
    with peers.join(environment, algorithm=task["method"], **task["setup"]) as peer:
        model = spread_over(MODELS[task["model"]](), task["kind"], peer)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        peer.attach(model, optimizer)
        whole = example_batch(SHAPES[task["model"]], task["batch"] * peer.crew.rows // n)
        batch = part_of(whole, task["kind"], peer)
        taken = []
        meeting = Meeting(task["setup"]["run_dir"], rank, n) if task["in_step"] else None
        began = time.monotonic()
        for _ in range(task["warmup"] + task["steps"]):
            if meeting is not None:
                meeting.wait()
                began = time.monotonic()
            loss: Any = _loss(model(batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ended = time.monotonic()
            taken.append(ended - began)
            began = ended
    return {"step_each": taken[task["warmup"] :]}


_known = presets.preset


def _patient(name: str, run: str = "run") -> presets.Preset:
    found = _known(name, run)
    return replace(found, settings=replace(found.settings, wait_floor=_PATIENCE, wait_ceiling=_PATIENCE))


def _wait_for_all() -> None:
    """Let peers of this process wait for every parcel: otherwise a slow link carries a part of them only."""
    presets.preset = _patient


def _loss(out: Tensor) -> Tensor:
    return functional.mse_loss(out, torch.zeros_like(out))
