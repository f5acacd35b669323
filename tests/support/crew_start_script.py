"""One process of a grid of 2x2 that torchrun or srun starts: it trains by FSDP2, and writes what it is.

python crew_start_script.py OPTIONS: JSON with ``out``, a path in which {rank} is filled in; ``replica``, if each
replica has a torchrun of its own; and settings of `peers.join`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import peers

ROWS, STEPS = 2, 5


def main() -> None:
    options = json.loads(sys.argv[1])
    out = options.pop("out")
    if (replica := options.pop("replica", None)) is not None:
        options["rank"] = ROWS * replica + int(os.environ["RANK"])
    with peers.join(grid="2x2", **options) as peer:
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 3)
        fully_shard(model, mesh=peer.crew.mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        peer.attach(model, optimizer)
        drawn = torch.Generator().manual_seed(peer.rank)
        for _ in range(STEPS):
            loss = (model(torch.randn(8, 6, generator=drawn)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        peer.consensus()
        assert isinstance(model.weight, DTensor)
        found = {
            "rank": peer.rank,
            "place": [peer.replica, peer.row],
            "world_size": peer.world_size,
            "view": list(peer.view),
            "part": list(model.weight.to_local().shape),
            "weight": model.weight.full_tensor().flatten().tolist(),
        }
        Path(out.format(rank=peer.rank)).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
