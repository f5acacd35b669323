"""Crews of two that train a little and end, again and again: prints each process's exit code.

python crew_ends_script.py PORT ROUNDS WAY...

Torch is imported once and forked. Each process ends as a script does, through the end of the interpreter, with its
model, its optimizer and a graph still referred to. The ways to end:

closed     the with statement ends
forgotten  the script ends without peer.close()
rows       the with statement ends; the model was split by the rows of images
left       the script raises an error in both rows
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import peers.joining
import peers.rows

#: What is still there when the interpreter ends.
KEPT: list[Any] = []


def train(peer: peers.Peer, way: str) -> None:
    """Make two steps, and keep all that may refer to the crew's process group."""
    torch.manual_seed(0)
    if way == "rows":
        model: nn.Module = nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Flatten(), nn.LazyLinear(2)
        )
        model(torch.ones(2, 1, 6, 4))
        peers.split_rows(model, peer.crew.mesh)
        x = torch.ones(2, 1, 3, 4)
    else:
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
        fully_shard(model, mesh=peer.crew.mesh)
        x = torch.ones(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    peer.attach(model, optimizer)
    for _ in range(2):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    KEPT.extend([peer, peer.crew, peer.crew.mesh, model, optimizer, model(x)])


def live(rank: int, port: str, way: str) -> None:
    """Be one row of a crew, up to the end of the interpreter."""
    world = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    peer = peers.join(world, grid="2x1", start_timeout=100.0)
    if way == "forgotten":
        train(peer, way)
        return
    with peer:
        train(peer, way)
        if way == "left":
            peer.crew.any(False)  # both are here
            raise ValueError("the script is wrong")


def main() -> None:
    port, rounds, ways = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    for way in ways * rounds:
        children = []
        for rank in range(2):
            child = os.fork()
            if not child:
                live(rank, port, way)
                sys.exit(0)
            children.append(child)
        for child in children:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    main()
