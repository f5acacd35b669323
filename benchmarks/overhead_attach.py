"""A small ResNet trained alone, with and without `attach`, in blocks of steps that take turns.

    python -m benchmarks.overhead_attach BLOCKS STEPS

Answers with one line of JSON: CPU and wall seconds per step of each block, without and with.
"""

from __future__ import annotations

import sys
import time

import torch
from torch.nn import functional

import peers
from benchmarks.engine_worker import say
from benchmarks.fashion_data import resnet

_BATCH = 32


class Training:
    """A network and its optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = resnet()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
        self.images = torch.randn(_BATCH, 1, 28, 28)
        self.labels = torch.randint(10, (_BATCH,))

    def block(self, steps: int) -> tuple[float, float]:
        """Train; return CPU seconds, of all threads, and wall seconds per step."""
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(steps):
            loss = functional.cross_entropy(self.model(self.images), self.labels)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        return (time.process_time() - cpu) / steps, (time.perf_counter() - wall) / steps


def main(blocks: int, steps: int) -> None:
    """Measure: without and with, with and without, and so on."""
    torch.set_num_threads(1)
    plain, attached = Training(), Training()
    with peers.join({}) as peer:
        peer.attach(attached.model, attached.optimizer)
        plain.block(steps)
        attached.block(steps)
        found: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
        for block in range(blocks):
            order = [("without", plain), ("with", attached)]
            for name, training in order if block % 2 == 0 else reversed(order):
                found[name].append(training.block(steps))
    say(dict(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
