"""What `benchmarks.attach` launches: a peer that attaches a large model and makes a step.

    attach_script.py DIRECTORY MIB KIND

KIND is ``trained``, or ``frozen``: then all but 4 MiB are. Each peer draws the same weights, as after loading one file,
except with KIND ``drawn``: trained, and each peer has weights of its own. It writes what it took into the directory.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import torch

import peers

#: Values of one matrix, 32 MiB in float32.
_MATRIX = 8 << 20


class Large(torch.nn.Module):
    """Matrices, and a vector that is always trained. Only the vector has a gradient that costs anything."""

    def __init__(self, matrices: int, seed: int, *, frozen: bool) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        drawn = [torch.empty(_MATRIX).uniform_(generator=draw) for _ in range(matrices)]
        self.matrices = torch.nn.ParameterList(torch.nn.Parameter(one, requires_grad=not frozen) for one in drawn)
        self.vector = torch.nn.Parameter(torch.zeros(1 << 20))

    def forward(self) -> torch.Tensor:
        """Return a loss."""
        loss = (self.vector - 1).square().mean()
        for one in self.matrices:
            loss = loss + one[0]
        return loss


def main(directory: Path, mib: int, kind: str) -> None:
    """Attach, make three steps, and write down when they were over."""
    torch.set_num_threads(1)
    with peers.join() as peer:
        model = Large(mib // 32, peer.rank if kind == "drawn" else 0, frozen=kind == "frozen")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        began, cpu = time.monotonic(), time.process_time()
        peer.attach(model, optimizer)
        moments = [time.monotonic()]
        attach_cpu = time.process_time() - cpu
        for _ in range(3):
            optimizer.zero_grad()
            model().backward()
            optimizer.step()
            moments.append(time.monotonic())
        found = {
            "attach": moments[0] - began,
            "attach_cpu": attach_cpu,
            "first_step": moments[1] - began,
            "step": moments[3] - moments[2],
            "sent": peer._attached().session.driver.bytes_sent,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        }
        peer.consensus(must_agree=False, timeout=300.0)
    (directory / f"{peer.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
