"""A small ResNet trained alone, with and without `attach`, in steps that take turns.

    python -m benchmarks.overhead_attach STEPS

Answers with one line of JSON: CPU and wall seconds of each step, without and with.
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
_WARMUP = 5


class Training:
    """A network and its optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = resnet()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
        self.images = torch.randn(_BATCH, 1, 28, 28)
        self.labels = torch.randint(10, (_BATCH,))

    def step(self) -> tuple[float, float]:
        """Train one step; return its CPU seconds, of all threads, and wall seconds."""
        cpu, wall = time.process_time(), time.perf_counter()
        loss = functional.cross_entropy(self.model(self.images), self.labels)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return time.process_time() - cpu, time.perf_counter() - wall


def main(steps: int) -> None:
    """Measure: without and with, with and without, and so on."""
    torch.set_num_threads(1)
    plain, attached = Training(), Training()
    with peers.join({}) as peer:
        peer.attach(attached.model, attached.optimizer)
        for _ in range(_WARMUP):
            plain.step()
            attached.step()
        found: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
        for step in range(steps):
            order = [("without", plain), ("with", attached)]
            for name, training in order if step % 2 == 0 else reversed(order):
                found[name].append(training.step())
    say(dict(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
