"""What is trained: images and their classes, a small network, and how the data is dealt out to peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import fashion_data

__all__ = ["TASKS", "Task", "batches", "deal"]

#: Test images that a curve is measured with; its last point has all of them.
CURVE_IMAGES = 4000
#: The least number of samples of a peer, however unequally classes are dealt out.
_FEWEST = 64


@dataclass(frozen=True)
class Task:
    """Data and a model for it."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    #: Makes the model; what is random in it comes from torch's generator.
    network: Callable[[], nn.Module]

    def model(self, seed: int) -> nn.Module:
        """Return the model that everybody starts with."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.network()

    @torch.no_grad()
    def accuracy(self, model: nn.Module, limit: int | None = None) -> float:
        """Return the percentage of test images that a model gets right, of the first ones or of all."""
        outputs = model(self.test_images[:limit])
        return 100.0 * float((outputs.argmax(1) == self.test_labels[:limit]).double().mean())


def small_network() -> nn.Module:
    """Return a network of 25,450 parameters with one hidden layer: a gradient of a batch of 16 takes 0.4 ms."""
    return nn.Sequential(nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(32, 10))


@cache
def fashion() -> Task:
    """Return Fashion-MNIST, all of it."""
    wrong = fashion_data.missing()
    if wrong:
        raise SystemExit(wrong)
    (images, labels), (test_images, test_labels) = fashion_data.train_images(), fashion_data.test_images()
    scaled, scaled_test = (fashion_data.scaled(pixels.flatten(1)) for pixels in (images, test_images))
    return Task(scaled, labels, scaled_test, test_labels, small_network)


@cache
def clouds() -> Task:
    """Return points around ten centres in 12 dimensions, and a linear model in double precision: for tests."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(10, 12))
    labels = np.arange(1200) % 10
    points = torch.from_numpy(centres[labels] + 0.5 * generator.normal(size=(1200, 12)))
    classes = torch.from_numpy(labels)
    return Task(
        points[:1000], classes[:1000], points[1000:], classes[1000:], lambda: nn.Linear(12, 10, dtype=torch.float64)
    )


TASKS: dict[str, Callable[[], Task]] = {"fashion": fashion, "clouds": clouds}


def deal(labels: Tensor, peers: int, dirichlet: float, seed: int) -> list[Tensor]:
    """Return which samples each peer has; each sample belongs to one peer.

    Args:
        labels: the classes.
        peers: how many there are.
        dirichlet: of each class a peer gets a share drawn from the Dirichlet distribution with this parameter: with
            0.1 most of it is one or two peers'. 0: all get alike.
        seed: what is drawn depends on.
    """
    generator = np.random.default_rng([11, seed])
    if not dirichlet:
        order = generator.permutation(len(labels))
        return [torch.from_numpy(order[rank::peers].copy()) for rank in range(peers)]
    classes = labels.numpy()
    while True:
        shares: list[list[np.ndarray]] = [[] for _ in range(peers)]
        for one in np.unique(classes):
            members = generator.permutation(np.flatnonzero(classes == one))
            cuts = np.cumsum(generator.dirichlet([dirichlet] * peers))[:-1] * len(members)
            for share, part in zip(shares, np.split(members, cuts.astype(int)), strict=True):
                share.append(part)
        dealt = [np.concatenate(share) for share in shares]
        if min(map(len, dealt)) >= _FEWEST:
            return [torch.from_numpy(one) for one in dealt]


def batches(task: Task, mine: Tensor, batch: int, seed: int, rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of a peer's own samples for ever, in a new order each time through."""
    generator = np.random.default_rng([12, seed, rank])
    size = min(batch, len(mine))
    while True:
        order = mine[torch.from_numpy(generator.permutation(len(mine)))]
        for start in range(0, len(mine) - size + 1, size):
            chosen = order[start : start + size]
            yield task.images[chosen], task.labels[chosen]
