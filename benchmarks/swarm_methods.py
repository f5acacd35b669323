"""The ways to train together that benchmarks compare: a peer of ours, or gloo's all-reduce by torch's DDP.

All find the others at MASTER_ADDR:MASTER_PORT, and all are given the same model, optimizer and data.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

import peers
from peers.methods.moves import LONGEST
from peers.steps.gossip_steps import GossipSteps

__all__ = ["Method", "free_port", "method"]

_PATIENCE = timedelta(seconds=120)


class Method(Protocol):
    """A way to train together with others."""

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        """Take the model and return the one to call; all start from the same weights."""

    def over(self, late: bool) -> bool:
        """Return whether to end after this step, which is late for this process or not; equal ones end together."""

    def agree(self) -> float:
        """Make the model that of all; return how far apart they still are."""

    def close(self) -> None:
        """End it."""


class Gossip:
    """A peer."""

    def __init__(self, rank: int, n: int, task: dict[str, Any]) -> None:
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(n),
            "MASTER_ADDR": task["address"],
            "MASTER_PORT": str(task["port"]),
        }
        self.peer = peers.join(environment, algorithm=task["method"], **task.get("setup", {}))
        #: How much mass each move moved, which is 1 on average if the swarm moves as far as its learning rate says:
        #: what was held, times how much longer the move was made (`peers.methods.moves`).
        self.moved: list[float] = []

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        """Attach; the model stays what it is."""
        self.peer.attach(model, optimizer)
        steps = self.peer._attached().steps
        if not isinstance(steps, GossipSteps):
            return model  # it holds no mass
        moves = steps.moves
        stretch = moves._stretch

        def watched(shard: int) -> float:
            factor = stretch(shard)
            self.moved.append(steps.weight(shard) * min(factor, LONGEST))
            return factor

        moves._stretch = watched
        return model

    def over(self, late: bool) -> bool:
        """End when it is late."""
        return late

    def agree(self) -> float:
        """Mix until all agree."""
        return self.peer.consensus()

    def close(self) -> None:
        """Leave the swarm."""
        self.peer.close()


class AllReduce:
    """One of the processes that torch's DDP keeps equal."""

    def __init__(self, rank: int, n: int, task: dict[str, Any]) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = task.get("interface", "lo")
        where = f"tcp://{task['address']}:{task['port']}"
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=n, timeout=_PATIENCE)

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:  # noqa: ARG002
        """Wrap the model; the optimizer has its parameters already."""
        return nn.parallel.DistributedDataParallel(model)

    def over(self, late: bool) -> bool:
        """End when rank 0 does."""
        told = torch.tensor([late])
        dist.broadcast(told, 0)
        return bool(told)

    def agree(self) -> float:
        """Wait for the others: they are equal."""
        dist.barrier()
        return 0.0

    def close(self) -> None:
        """End the group."""
        dist.destroy_process_group()


class Alone:
    """Nobody else: what the loop costs by itself."""

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:  # noqa: ARG002
        """Do nothing."""
        return model

    def over(self, late: bool) -> bool:
        """End when it is late."""
        return late

    def agree(self) -> float:
        """Do nothing."""
        return 0.0

    def close(self) -> None:
        """Do nothing."""


def method(rank: int, n: int, task: dict[str, Any]) -> Method:
    """Return the way that a task names: ``ddp``, ``alone``, or an algorithm of ours."""
    if task["method"] == "ddp":
        return AllReduce(rank, n, task)
    return Alone() if task["method"] == "alone" else Gossip(rank, n, task)


def free_port() -> int:
    """Return a port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
