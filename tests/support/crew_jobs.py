"""What crews do besides training, for `crew_script`: batches, evaluation, checkpoints, and what they refuse."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from crew_script import LONGEST, Case, batch_of, joined, made, meet, optimizer_of, part, spread, whole
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.utils.data import TensorDataset

from gossip.errors import GossipError
from peers.model.drawn_parts import drawn_alike, drops_apart
from peers.model.spread import local_part


def step(case: Case, peer: Any, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Make one step."""
    x, y = (part(case, peer, one) for one in batch_of(case, peer.replica, peer.step))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    if case.lockstep:  # as in any step that takes longer than a round trip, all answers are there
        assert peer._attached().session.driver.flush(LONGEST)
    optimizer.step()


def batches(case: Case, environment: dict[str, str], directory: Path) -> dict[str, Any]:  # noqa: ARG001
    """Go through an epoch for each way to split, with and without workers; the last batch is not full."""
    samples, images = 45, torch.arange(45 * 5.0).reshape(45, 1, 5, 1)
    data = TensorDataset(torch.arange(samples), images)
    seen: dict[str, list[tuple[list[int], list[int]]]] = {}
    with joined(case, environment) as peer:
        model = made(case, 0)
        spread(case, model, peer)
        optimizer = optimizer_of(case, model)
        peer.attach(model, optimizer)
        for split in ("none", "batch", "rows"):
            for workers in case.options["workers"]:
                got = seen[f"{split}-{workers}"] = []
                for index, image in peer.batches(data, 4, 1, split=split, num_workers=workers):
                    got.append((index.tolist(), (image[0, 0, :, 0] - 5 * index[0]).int().tolist()))
                    step(case, peer, model, optimizer)
        peer.consensus()
        return {"seen": seen, "samples": peer.samples, "place": (peer.replica, peer.row)}


def move(model: nn.Module, replica: int) -> None:
    """Let a replica differ from the others: all its rows move what they hold alike."""
    for tensor in model.parameters():
        local_part(tensor).add_(replica)


def evaluated(case: Case, environment: dict[str, str], directory: Path) -> dict[str, Any]:
    """Look at the average in the middle of training, and go on with the own values."""
    with joined(case, environment) as peer:
        model = made(case, 0)
        spread(case, model, peer)
        optimizer = optimizer_of(case, model)
        peer.attach(model, optimizer)
        for _ in range(3):
            step(case, peer, model, optimizer)
        with torch.no_grad():  # in lockstep all replicas agree after a step, and the average is what each has
            move(model, peer.replica)
        before = whole(model)
        result = peer.evaluate(lambda: whole(model))
        after = whole(model)
        step(case, peer, model, optimizer)
        last = whole(model)
        meet(directory, f"{case.name}.evaluated", peer.rank, peer.world_size)  # who leaves changes the schedule
        return {"last": last, "before": before, "own": result.own, "average": result.average, "after": after}


def resumed(case: Case, environment: dict[str, str], directory: Path) -> dict[str, Any]:
    """Train with checkpoints; take the newest one away from one row; resume, and train as far as the first time."""
    run = str(directory / f"{case.name}.run")
    found: dict[str, Any] = {}
    for life, steps in (("first", 6), ("second", 6)):
        with joined(case, environment, run_dir=run, checkpoint_every=2, resume=life == "second") as peer:
            model = made(case, peer.rank if life == "second" else 0)
            spread(case, model, peer)
            optimizer = optimizer_of(case, model)
            peer.attach(model, optimizer)
            found[f"{life} began"] = peer.step
            while peer.step < steps:
                step(case, peer, model, optimizer)
                peer._attached().saving._checkpoints.wait()  # type: ignore[union-attr]
            found[life] = whole(model)
            meet(directory, f"{case.name}.{life}", peer.rank, peer.world_size)  # who leaves changes the schedule
        if life == "first":
            mine = Path(run) / f"rank-{peer.rank}" / "checkpoints"
            if peer.row == 1:
                shutil.rmtree(max(mine.iterdir(), key=lambda one: one.name))
            found["left"] = sorted(one.name for one in mine.iterdir())
    if case.kind == "tp":
        found["other way"] = refusal(case, environment, "fsdp", run_dir=run, resume=True)
    other = Case(case.name, "whole", f"1x{peer.world_size}", join=case.join)
    found["other grid"] = refusal(other, environment, "whole", run_dir=run, resume=True)
    if case.kind == "tp":
        meet(directory, f"{case.name}.other", peer.rank, peer.world_size)  # all have read what is there
        if peer.row == 1:
            for saved in mine.glob("step-*"):
                shutil.rmtree(saved)
        meet(directory, f"{case.name}.lost", peer.rank, peer.world_size)
        four = Case(case.name, "whole", f"{peer.world_size}x1", join=case.join)
        found["more rows"] = refusal(four, environment, "whole", run_dir=run, resume=True)
        found["in common"] = refusal(case, environment, "whole", run_dir=run, resume=True)
    return found


def refusal(case: Case, environment: dict[str, str], kind: str, **more: Any) -> str:
    """Return how attach refuses a model."""
    with joined(case, environment, **more) as peer:
        model = made(case, 0)
        if kind == "mesh":  # of the first row alone
            mesh = DeviceMesh("cpu", [0])
            model.head.weight = nn.Parameter(distribute_tensor(model.head.weight.data, mesh, [Shard(0)]))
        elif kind == "fsdp":
            fully_shard(model, mesh=peer.crew.mesh)
        try:
            peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        except GossipError as error:
            return f"{type(error).__name__}: {error}"
    raise AssertionError("not refused")


def refused(case: Case, environment: dict[str, str], directory: Path) -> dict[str, Any]:  # noqa: ARG001
    """Try what crews cannot do."""
    found = {
        algorithm: refusal(case, environment, "whole", algorithm=algorithm)
        for algorithm in ("allreduce", "parameter-server", "outer")
    }
    return {**found, "mesh": refusal(case, environment, "mesh")}


def drawn(case: Case, environment: dict[str, str], directory: Path) -> dict[str, Any]:  # noqa: ARG001
    """Draw a model before it is spread, and after; then give it dropout, for which rows draw alike, and do not."""
    found: dict[str, Any] = {}
    with joined(case, environment) as peer:
        model = made(case, 0)
        spread(case, model, peer)
        found["before"] = drawn_alike(model, peer.crew)
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that such draws may not be complete, not what is wrong
            for layer in (model.wide, model.narrow):
                layer.reset_parameters()
        found["after"] = drawn_alike(model, peer.crew)
        torch.manual_seed(peer.rank)
        found["without dropout"] = drops_apart(model, peer.crew)
        model.drop = nn.Dropout(0.1)
        found["apart"] = drops_apart(model, peer.crew)
        torch.manual_seed(peer.replica)
        found["alike"] = drops_apart(model, peer.crew)
        torch.manual_seed(peer.rank)  # for attach to see
        peer.attach(model, optimizer_of(case, model))
    return found
