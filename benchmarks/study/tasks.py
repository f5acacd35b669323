"""What is trained: data, a small model for it, how good that is, and how the data is dealt out to peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import fashion_data, python_text
from benchmarks.gpt import GPT

__all__ = ["TASKS", "Batches", "Score", "Task", "batches", "deal"]

#: Samples for validation that a curve is measured with, of those there are; its last point has all of them.
CURVE_SAMPLES = 4000
#: Inputs and targets.
Batches = Iterator[tuple[Tensor, Tensor]]
#: The least number of samples of a peer, however unequally classes are dealt out.
_FEWEST = 64


class Score(NamedTuple):
    """How good a model is on samples that nobody trains with."""

    #: Per cent of the targets that it thinks most likely.
    accuracy: float
    #: Mean cross-entropy, in nats.
    loss: float


@dataclass(frozen=True)
class Task:
    """Data and a model for it: one that has a logit for each class, of a sample or of each place of a sample."""

    inputs: Tensor
    #: The right classes.
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    #: What kind of sample each is, of which peers get more or less where data is dealt out unequally.
    kinds: Tensor
    #: Makes the model; what is random in it comes from torch's generator.
    network: Callable[[], nn.Module]
    #: A model with an accuracy below this has learnt nothing.
    chance: float = 15.0

    def model(self, seed: int) -> nn.Module:
        """Return the model that everybody starts with."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.network()

    def loss(self, model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of a batch."""
        return functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())

    @torch.no_grad()
    def score(self, model: nn.Module, limit: int | None = None) -> Score:
        """Return how good a model is, on the first of the samples for validation or on all."""
        logits, targets = model(self.test_inputs[:limit]).flatten(0, -2), self.test_targets[:limit].flatten()
        right = (logits.argmax(1) == targets).double().mean()
        return Score(100.0 * float(right), float(functional.cross_entropy(logits, targets)))


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
    return Task(scaled, labels, scaled_test, test_labels, labels, small_network)


@cache
def fashion_cnn() -> Task:
    """Return Fashion-MNIST and the convolutional network of 105,866 parameters of `benchmarks.accuracy`."""
    flat = fashion()
    images, test_images = (one.view(-1, 1, 28, 28) for one in (flat.inputs, flat.test_inputs))
    return replace(flat, inputs=images, test_inputs=test_images, network=fashion_data.small_network)


@cache
def clouds() -> Task:
    """Return points around ten centres in 12 dimensions, and a linear model in double precision: for tests."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(10, 12))
    labels = np.arange(1200) % 10
    points = torch.from_numpy(centres[labels] + 0.5 * generator.normal(size=(1200, 12)))
    classes = torch.from_numpy(labels)
    return Task(
        points[:1000],
        classes[:1000],
        points[1000:],
        classes[1000:],
        classes[:1000],
        lambda: nn.Linear(12, 10, dtype=torch.float64),
    )


@cache
def characters(layers: int, width: int, heads: int, block: int, held_out: int, dtype: torch.dtype) -> Task:
    """Return the next character of Python sources, and a GPT for it.

    Args:
        layers: of the GPT, as are width and heads.
        width: features of a character.
        heads: of the attention.
        block: characters of a sample.
        held_out: samples for validation, spread over all files that are held out.
        dtype: of the parameters.
    """
    (text, ends), (test_text, _) = python_text.text()
    inputs, targets = python_text.windows(text, block)
    test_inputs, test_targets = python_text.windows(test_text, block)
    chosen = torch.arange(held_out) * (len(test_inputs) // held_out)
    return Task(
        inputs,
        targets,
        test_inputs[chosen],
        test_targets[chosen],
        torch.bucketize(torch.arange(len(inputs)) * block, ends, right=True),
        lambda: GPT(python_text.VOCABULARY, block, layers, width, heads).to(dtype),
        chance=20.0,  # of 100 characters 29 are blanks
    )


#: Of the GPTs, `small` has 108,864 parameters and `base` 808,064; `tiny` has 4,912 in double precision, for tests.
TASKS: dict[str, Callable[[], Task]] = {
    "fashion": fashion,
    "fashion-cnn": fashion_cnn,
    "clouds": clouds,
    "characters-tiny": partial(characters, 1, 16, 2, 16, 32, torch.float64),
    "characters-small": partial(characters, 2, 64, 4, 64, 256, torch.float32),
    "characters-base": partial(characters, 4, 128, 4, 64, 256, torch.float32),
}


def deal(kinds: Tensor, peers: int, dirichlet: float, seed: int) -> list[Tensor]:
    """Return which samples each peer has; each sample belongs to one peer.

    Args:
        kinds: of the samples.
        peers: how many there are.
        dirichlet: of each kind a peer gets a share drawn from the Dirichlet distribution with this parameter: with
            0.1 most of it is one or two peers'. 0: all get alike.
        seed: what is drawn depends on.
    """
    generator = np.random.default_rng([11, seed])
    if not dirichlet:
        order = generator.permutation(len(kinds))
        return [torch.from_numpy(order[rank::peers].copy()) for rank in range(peers)]
    each = kinds.numpy()
    while True:
        shares: list[list[np.ndarray]] = [[] for _ in range(peers)]
        for one in np.unique(each):
            members = generator.permutation(np.flatnonzero(each == one))
            cuts = np.cumsum(generator.dirichlet([dirichlet] * peers))[:-1] * len(members)
            for share, part in zip(shares, np.split(members, cuts.astype(int)), strict=True):
                share.append(part)
        dealt = [np.concatenate(share) for share in shares]
        if min(map(len, dealt)) >= _FEWEST:
            return [torch.from_numpy(one) for one in dealt]


def batches(task: Task, mine: Tensor, batch: int, seed: int, rank: int) -> Batches:
    """Yield batches of a peer's own samples for ever, in a new order each time through."""
    generator = np.random.default_rng([12, seed, rank])
    size = min(batch, len(mine))
    while True:
        order = mine[torch.from_numpy(generator.permutation(len(mine)))]
        for start in range(0, len(mine) - size + 1, size):
            chosen = order[start : start + size]
            yield task.inputs[chosen], task.targets[chosen]
