"""What a worker of a swarm can be asked to do: train a real network, or one that only has a size and takes time."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.characters_job import characters
from benchmarks.engine_worker import cpu_seconds, peak_rss
from benchmarks.fashion_data import scaled, small_network, test_images, train_images
from benchmarks.grid_job import grid
from benchmarks.message_counts import count_messages
from benchmarks.processes import Answer
from benchmarks.swarm_methods import Gossip, Method, method
from peers.data.sampler import PeerSampler

__all__ = ["JOBS", "batches_of", "schedule"]

#: Parameters of the emulated model come in pieces of this many bytes, as those of a real one do.
_PIECE = 1 << 18


class Emulated(nn.Module):
    """Parameters of ``nbytes`` bytes that are all trained, at almost no cost."""

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        pieces = max(1, nbytes // _PIECE)
        self.pieces = nn.ParameterList([nn.Parameter(torch.zeros(nbytes // pieces // 4)) for _ in range(pieces)])

    def forward(self, x: Tensor) -> Tensor:
        """Return something that depends on all parameters."""
        return x * torch.stack([piece.sum() for piece in self.pieces]).sum()


def emulated(rank: int, n: int, task: dict[str, Any]) -> Answer:
    """Train a model that is as large as told, with steps that take as long as told.

    The task says ``nbytes``, ``compute`` (seconds of a step), ``steps``, ``warmup`` (steps that are not counted), and
    perhaps ``slow``, a rank that takes ``factor`` times as long. A slow peer does fewer steps: all end together. With
    ``counts`` the answer has messages and bytes by kind.
    """
    slow = task.get("slow") == rank
    factor = float(task.get("factor", 4)) if slow else 1.0
    steps, warmup = task["steps"], task["warmup"]
    asynchronous = task["method"] != "ddp"
    if slow and asynchronous:
        warmup = math.ceil(warmup / factor)
        steps = max(warmup + 1, math.ceil(steps / factor))
    base = peak_rss()
    way = method(rank, n, task)
    model = Emulated(task["nbytes"])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    training = way.attach(model, optimizer)
    messages, volumes = Counter[str](), Counter[str]()
    if task.get("counts") and isinstance(way, Gossip):
        count_messages(way.peer._attached().session.driver, messages, volumes)
    marks, cpu = [], 0.0
    for step in range(steps + 1):
        if step == warmup:
            cpu = cpu_seconds()
        marks.append(time.monotonic())
        if step == steps:
            break
        began = time.monotonic()
        loss = training(torch.ones(()))
        time.sleep(task["compute"])
        if slow and not asynchronous:
            time.sleep((factor - 1) * (time.monotonic() - began))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    cpu = cpu_seconds() - cpu
    counts = {"messages": dict(messages), "volumes": dict(volumes)}
    if task.get("linger"):
        time.sleep(task["linger"])  # whoever is not done yet should not find itself alone
    peak = peak_rss()
    way.close()
    marks = marks[warmup:]
    counted = len(marks) - 1
    return {
        "step_seconds": (marks[-1] - marks[0]) / counted,
        "step_each": [after - before for before, after in itertools.pairwise(marks)],
        "cpu_seconds": cpu / counted,
        "base_rss_mib": base,
        "peak_rss_mib": peak,
        **counts,
        **_noted(rank, task, warmup),
    }


def _noted(rank: int, task: dict[str, Any], warmup: int = 0) -> Answer:
    """Return means over the counted steps of what a peer wrote down, if it was told where to."""
    run_dir = task.get("setup", {}).get("run_dir")
    if not run_dir or task["method"] in ("ddp", "alone"):
        return {}
    lines = (Path(run_dir) / f"rank-{rank}" / "metrics.jsonl").read_text().splitlines()
    noted = [json.loads(line) for line in lines][warmup:]
    means = ("wait_seconds", "weight", "bytes_sent")
    return {name: sum(line[name] for line in noted) / len(noted) for name in means}


def fashion(rank: int, n: int, task: dict[str, Any]) -> Answer:
    """Train a small network on Fashion-MNIST, and return the accuracy of what all have agreed on."""
    torch.manual_seed(task["seed"])
    images, labels = train_images()
    order = batches_of(PeerSampler(len(images), rank, n, task["seed"]), task["batch"])
    model = small_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=task["lr"], momentum=0.9, nesterov=True)
    steps = task["steps"]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, steps))
    way: Method = method(rank, n, task)
    training = way.attach(model, optimizer)
    began = time.monotonic()
    for _ in range(steps):
        batch = next(order)
        loss = functional.cross_entropy(training(scaled(images[batch])), labels[batch])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        scheduler.step()
    seconds = time.monotonic() - began
    own = _accuracy(model) if rank == 0 else None
    apart = way.agree()
    agreed = _accuracy(model) if rank == 0 else None
    way.close()
    moved = getattr(way, "moved", [])
    return {
        "accuracy": agreed,
        "own": own,
        "apart": apart,
        "seconds": seconds,
        "moved": sum(moved) / len(moved) if moved else 1.0,
        **_noted(rank, task, task.get("warmup", 0)),
    }


def schedule(step: int, steps: int) -> float:
    """A short warm-up, then half a cosine down to 0."""
    warm = max(1, steps // 20)
    return min(1.0, (step + 1) / warm) * (1 + math.cos(math.pi * step / steps)) / 2


def batches_of(sampler: PeerSampler, size: int) -> Iterator[Tensor]:
    """Yield batches of this rank's part of the data, without end."""
    batch: list[int] = []
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for index in sampler:
            batch.append(index)
            if len(batch) == size:
                yield torch.tensor(batch)
                batch = []
        epoch += 1


def _accuracy(model: nn.Module) -> float:
    """Return the share of the test images that are named right, in %."""
    images, labels = test_images()
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(scaled(part)).argmax(1) for part in torch.split(images, 500)])
    model.train()
    return 100 * (found == labels).float().mean().item()


JOBS: dict[str, Callable[[int, int, dict[str, Any]], Answer]] = {
    "emulated": emulated,
    "fashion": fashion,
    "characters": characters,
    "grid": grid,
}
