"""A replica of several processes (FSDP2) that trains until a file says stop.

python crew_loop_script.py STOP_FILE
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.distributed.fsdp import fully_shard

import peers.closing

#: Seconds that who leaves has for handing over what it holds, on a machine that may stand still for a while.
peers.closing._FLUSH = 20.0


def main() -> None:
    stop = Path(sys.argv[1])
    with peers.join() as peer:
        torch.manual_seed(0)
        model = torch.nn.Linear(20, 3)
        fully_shard(model, mesh=peer.crew.mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        peer.attach(model, optimizer)
        generator = torch.Generator().manual_seed(peer.rank)
        while not peer.crew.decide(stop.exists):
            loss = (model(torch.randn(8, 20, generator=generator)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            peer.log(loss=loss)
            optimizer.step()
            time.sleep(0.01)  # a step's computing


if __name__ == "__main__":
    main()
