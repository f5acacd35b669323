"""What `benchmarks.frozen` launches: a peer that attaches a large frozen model with a small trained part.

    frozen_script.py DIRECTORY MIB SEEDS

SEEDS is ``same`` or ``own``: whether all peers have the same frozen weights. The peer writes what it cost into the
directory, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

import peers

_MIB = 1 << 20
#: Elements of one frozen matrix, 25 MiB in float32.
_MATRIX = 25 * _MIB // 4
_TRAINED = 4 * _MIB // 4


def resident(what: str) -> int:
    """Return the bytes of memory of this process that are resident now (VmRSS), or were at most (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"/proc/self/status has no {what}")


class Adapted(torch.nn.Module):
    """Frozen matrices, and a vector that is trained."""

    def __init__(self, matrices: int, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        frozen = [torch.empty(_MATRIX).uniform_(generator=draw) for _ in range(matrices)]
        self.frozen = torch.nn.ParameterList(torch.nn.Parameter(one, requires_grad=False) for one in frozen)
        self.trained = torch.nn.Parameter(torch.zeros(_TRAINED))


def main(directory: Path, mib: int, seeds: str) -> None:
    """Attach, and write down the seconds, the bytes and the memory that it took."""
    with peers.join() as peer:
        before = resident("VmRSS")
        model = Adapted(mib // 25, peer.rank if seeds == "own" else 0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        own = resident("VmRSS") - before
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM counts from here on
        began = time.monotonic()
        peer.attach(model, optimizer)
        seconds = time.monotonic() - began
        driver = peer._attached().session.driver
        found = {
            "seconds": seconds,
            "sent": driver.bytes_sent,
            "received": driver.bytes_received,
            "own": own,
            "peak": resident("VmHWM") - before,
            "first": float(model.frozen[0][0]),
        }
        peer.consensus()
    (directory / f"{peer.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
