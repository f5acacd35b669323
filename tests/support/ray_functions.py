"""What peers on Ray run in the tests. Ray's workers import this module: torch is imported only where it is needed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def until_told(config: dict[str, Any]) -> dict[str, Any]:
    """Train a line until a file says stop, and agree; say in a file each time that a process trains."""
    import torch

    import peers

    stop, signs = Path(config["stop"]), Path(config["signs"])
    torch.manual_seed(os.getpid())
    with peers.join() as peer:
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        peer.attach(model, optimizer)
        generator = torch.Generator().manual_seed(peer.rank)
        first = peer.step
        while not stop.exists():
            x = torch.randn(8, 8, generator=generator)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            peer.log(loss=loss)
            optimizer.step()
            if peer.step == first + 20:
                (signs / f"{peer.rank}-{os.getpid()}").touch()
            time.sleep(0.05)  # what a step computes
        apart = peer.consensus()
    return {
        "rank": peer.rank,
        "apart": apart,
        "weights": [value for parameter in model.parameters() for value in parameter.flatten().tolist()],
        "pid": os.getpid(),
        "channel": os.environ["GOSSIP_CHANNEL"],
        "environment": [name for name in os.environ if name.startswith("GOSSIP_")],
        "encrypted": peer._setup.keys is not None,
    }


def fails() -> None:
    """Raise an error before joining."""
    raise ZeroDivisionError("the data is not there")


def never_joins(config: dict[str, Any]) -> float:
    """Return without being a peer."""
    return float(config["value"])


def in_a_worker(config: dict[str, Any]) -> None:
    """Join in a worker of ray.train, train a few steps beside its process group, and write what came of it."""
    import torch

    import peers

    with peers.join(start_timeout=config["start_timeout"]) as peer:
        torch.manual_seed(peer.rank)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        peer.attach(model, optimizer)
        for _ in range(20):
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        peer.consensus()
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        total = torch.tensor([1.0])
        torch.distributed.all_reduce(total)  # ray.train's own group works beside the swarm
    said = {"rank": peer.rank, "peers": peer.world_size, "weights": weights.tolist(), "group": float(total)}
    Path(config["output"], f"worker-{peer.rank}").write_text(json.dumps(said))
