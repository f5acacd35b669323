"""Fashion-MNIST as Debian packages it, and two networks for it."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["DIRECTORY", "missing", "resnet", "scaled", "small_network", "test_images", "train_images"]

DIRECTORY = Path("/usr/share/datasets/fashion-mnist")
_FILES = [(f"{kind}-images-idx3-ubyte.gz", f"{kind}-labels-idx1-ubyte.gz") for kind in ("train", "t10k")]


def missing() -> str | None:
    """Return what to do if the data is not there."""
    absent = [name for pair in _FILES for name in pair if not (DIRECTORY / name).is_file()]
    return f"there is no {DIRECTORY / absent[0]}: apt-get install dataset-fashion-mnist" if absent else None


@cache
def train_images() -> tuple[Tensor, Tensor]:
    """Return the training images, as bytes, and their labels."""
    return _read(*_FILES[0])


@cache
def test_images() -> tuple[Tensor, Tensor]:
    """Return the test images, as bytes, and their labels."""
    return _read(*_FILES[1])


def _read(images: str, labels: str) -> tuple[Tensor, Tensor]:
    pixels = np.frombuffer(gzip.decompress((DIRECTORY / images).read_bytes()), np.uint8, offset=16)
    names = np.frombuffer(gzip.decompress((DIRECTORY / labels).read_bytes()), np.uint8, offset=8)
    return torch.tensor(pixels).view(-1, 1, 28, 28), torch.tensor(names).long()


def scaled(pixels: Tensor) -> Tensor:
    """Return images as a network takes them: numbers around 0, about as large as 1."""
    return (pixels.float() - 73.0) / 90.0


def small_network() -> nn.Module:
    """Return a convolutional network of 105,866 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


class Block(nn.Module):
    """Two convolutions around which the input flows as well."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        inner = self.norms[1](self.second(functional.relu(self.norms[0](self.first(x)))))
        return functional.relu(inner + self.around(x))


def resnet(width: int = 16) -> nn.Module:
    """Return the ResNet of ``examples/fashion.py``, which is a script and cannot be imported."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 10),
    )
