"""A training script of which rank 1 ends before it attaches its model.

python crash_script.py HOW [FILE]: with a file, only the first life does, and leaves the file behind.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

import peers

with peers.join() as peer:
    if peer.rank == 1 and not (len(sys.argv) > 2 and Path(sys.argv[2]).exists()):
        if len(sys.argv) > 2:
            Path(sys.argv[2]).touch()
        if sys.argv[1] == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.exit(int(sys.argv[1]))
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    print(f"rank {peer.rank} trains", flush=True)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    peer.consensus()
