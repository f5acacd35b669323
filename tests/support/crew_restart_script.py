"""One process of a grid of 2x2 with a torchrun for each replica: one row dies, and torchrun restarts its replica.

REPLICA=1 torchrun ... crew_restart_script.py OPTIONS: JSON with ``out``, a path in which {rank} is filled in, ``stop``,
the file that ends the training, and settings of `peers.join`. The restarted replica makes that file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch.distributed.fsdp import fully_shard

import peers

ROWS, DIES_AT, ENOUGH = 2, 10, 10


def main() -> None:
    options = json.loads(sys.argv[1])
    out, stop = options.pop("out"), Path(options.pop("stop"))
    replica, life = int(os.environ["REPLICA"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    with peers.join(grid="2x2", rank=ROWS * replica + int(os.environ["RANK"]), **options) as peer:
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 3)
        fully_shard(model, mesh=peer.crew.mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        peer.attach(model, optimizer)
        drawn, most = torch.Generator().manual_seed(peer.rank), 0
        while not peer.crew.decide(stop.exists):
            if (peer.rank, life, peer.step) == (ROWS + 1, 0, DIES_AT):
                os.kill(os.getpid(), signal.SIGKILL)
            loss = (model(torch.randn(8, 6, generator=drawn)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            most = most + 1 if peer.view == (0, 1) else 0
            if peer.row == 0 and life == 1 and most > ENOUGH:
                stop.touch()
            time.sleep(0.01)  # a step's computing
        found = {"replica": peer.replica, "life": life, "steps": peer.step}
        Path(out.format(rank=peer.rank)).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
