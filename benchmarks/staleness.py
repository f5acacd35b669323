"""What it costs by itself that a gradient is old when it counts: peers that never disagree, in step or not.

    python -m benchmarks.staleness [--quick] [--json]

Eight simulated peers share one model, so that nothing is lost on the way or by disagreement. Each computes a gradient
of the model as it is when its step begins, and when the step is over moves the model by an eighth of what its own SGD
makes of it (momentum 0.9, Nesterov's). *In step* all end at once: that is all-reduce. Otherwise steps take between 0.7
and 1.3 times as long as usual, and while a peer computes the others move the model: that is the best that asynchronous
gossip can come to. *first* is how many steps are in step before.

Fashion-MNIST, a network of two hidden layers of 64, 1,350 steps of 32 samples per peer, the schedule of
`benchmarks.accuracy`; means of 4 seeds and the standard errors (``--quick``: 1 seed of 100 steps, and no bar).

And the largest rate at which the same moves are stable on a parabola of curvature 1.

Bars: not in step costs training loss, and half of that is won back by 500 steps in step at first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from statistics import fmean, stdev
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.bars import Bar, command, finish, table
from benchmarks.fashion_data import missing, scaled, test_images, train_images
from benchmarks.swarm_jobs import batches_of, schedule
from peers.data.sampler import PeerSampler

__all__ = ["Momenta", "largest_rate", "main", "moved"]

N, STEPS, BATCH, RATE, MOMENTUM = 8, 1350, 32, 0.15, 0.9
SEEDS = range(4)
#: How many steps are in step at first.
FIRST = (STEPS, 0, 100, 300, 500)
#: Training images that the loss is measured by.
_LOOKED_AT = 20_000

#: A model: its parameters, or a single number.
Model = TypeVar("Model", Tensor, float)


def moved(
    z: Model, move: Callable[[int, int, Model], Model], steps: int, first: int, seed: int, peers: int = N
) -> Model:
    """Return the model after ``steps`` steps of each peer.

    Args:
        z: where it begins.
        move: what is added to the model, from the rank, its step and the model that it began with.
        steps: of each peer.
        first: how many of them are in step.
        seed: by which steps vary after that.
        peers: how many there are.
    """
    for step in range(first):
        z = z + sum(move(rank, step, z) for rank in range(peers)) / peers
    random = np.random.default_rng(seed)
    seen, done = [z] * peers, [first] * peers
    # When the next step of each is over. They begin anywhere in a step.
    ends = [(random.uniform(0.0, 1.0), rank) for rank in range(peers)] if first < steps else []
    heapq.heapify(ends)
    while ends:
        now, rank = heapq.heappop(ends)
        z = z + move(rank, done[rank], seen[rank]) / peers
        seen[rank] = z
        done[rank] += 1
        if done[rank] < steps:
            heapq.heappush(ends, (now + random.uniform(0.7, 1.3), rank))
    return z


class Momenta(Generic[Model]):
    """Nesterov's momentum, one buffer for each peer."""

    def __init__(self) -> None:
        self._buffers: dict[int, Model] = {}

    def move(self, rank: int, gradient: Model, rate: float) -> Model:
        """Return what `torch.optim.SGD` would add to the values."""
        before = self._buffers.get(rank)
        self._buffers[rank] = gradient if before is None else MOMENTUM * before + gradient
        return -rate * (gradient + MOMENTUM * self._buffers[rank])


def largest_rate(in_step: bool, steps: int = 400) -> float:
    """Return the largest rate at which a parabola of curvature 1 is descended rather than climbed."""

    def climbs(rate: float) -> bool:
        momenta: Momenta[float] = Momenta()
        first = steps if in_step else 0
        return not abs(moved(1.0, lambda rank, _, seen: momenta.move(rank, seen, rate), steps, first, seed=0)) < 1.0

    low, high = 0.0, 4.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if climbs(middle) else (middle, high)
    return low


def _network() -> nn.Module:
    layers = [nn.Flatten(), nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers)


def _trained(seed: int, steps: int, first: int) -> tuple[float, float]:
    """Return the accuracy on test images, in %, and the loss on training images."""
    torch.manual_seed(seed)
    images, labels = train_images()
    model = _network()
    orders = [batches_of(PeerSampler(len(images), rank, N, seed), BATCH) for rank in range(N)]
    momenta: Momenta[Tensor] = Momenta()

    def move(rank: int, step: int, seen: Tensor) -> Tensor:
        nn.utils.vector_to_parameters(seen, model.parameters())
        batch = next(orders[rank])
        loss = functional.cross_entropy(model(scaled(images[batch])), labels[batch])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        return momenta.move(rank, torch.cat([one.flatten() for one in gradients]), RATE * schedule(step, steps))

    z = moved(nn.utils.parameters_to_vector(model.parameters()).detach(), move, steps, first, seed)
    nn.utils.vector_to_parameters(z, model.parameters())
    with torch.no_grad():
        found, names = model(scaled(test_images()[0])), test_images()[1]
        loss = functional.cross_entropy(model(scaled(images[:_LOOKED_AT])), labels[:_LOOKED_AT])
    return 100 * (found.argmax(1) == names).double().mean().item(), loss.item()


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    if absent := missing():
        raise SystemExit(f"staleness: {absent}")
    torch.set_num_threads(1)
    seeds, steps = (SEEDS[:1], 100) if quick else (SEEDS, STEPS)
    firsts = [min(first, steps) for first in FIRST]
    found = {first: [_trained(seed, steps, first) for seed in seeds] for first in dict.fromkeys(firsts)}
    rows = []
    for first, runs in found.items():
        accuracies, losses = zip(*runs, strict=True)
        what = "in step" if first == steps else f"first {first}" if first else "never in step"
        rows.append([what, _mean(accuracies, 2), _mean(losses, 4)])
    text = f"staleness: {N} simulated peers that share a model, {steps} steps, rate {RATE:g}, {len(seeds)} seeds\n"
    text += table(["", "test accuracy, %", "training loss"], rows)
    rates = {in_step: largest_rate(in_step) for in_step in (True, False)}
    text += f"\n  largest stable rate for a curvature of 1: {rates[True]:.2f} in step, {rates[False]:.2f} not in step"
    loss = {first: fmean(loss for _, loss in runs) for first, runs in found.items()}
    bars = []
    if not quick:
        cost = loss[0] - loss[STEPS]
        bars = [
            Bar("training loss, not in step less in step", cost, ">=", 0.005),
            Bar("part of it that is left after 500 steps in step", (loss[500] - loss[STEPS]) / cost, "<=", 0.5),
        ]
    figures = {"runs": {str(first): runs for first, runs in found.items()}, "rates": list(rates.values())}
    return finish(text, figures, bars, as_json=as_json)


def _mean(values: tuple[float, ...], digits: int) -> str:
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{fmean(values):.{digits}f} ± {error:.{digits}f}"


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
