"""A peer that hardly computes: for benchmarks of what the swarm does, not of what it trains.

light_peer.py STOP_FILE SECONDS_PER_STEP [PARAMETERS]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

import peers


def main() -> None:
    """Take steps until the file is there."""
    stop, seconds = Path(sys.argv[1]), float(sys.argv[2])
    size = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    with peers.join() as peer:
        model = torch.nn.Linear(size, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        peer.attach(model, optimizer)
        while not stop.exists():
            model.weight.grad = torch.randn_like(model.weight)
            optimizer.step()
            time.sleep(seconds)


if __name__ == "__main__":
    main()
