"""Fashion-MNIST with a small ResNet.

apt-get install dataset-fashion-mnist            # or --data DIR with the four .gz files
gossip launch -n 4 examples/fashion.py --epochs 2
gossip launch --hostfile hosts --topology base --algorithm sgp examples/fashion.py
"""

import argparse
import gzip
import logging
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import peers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
parser.add_argument("--epochs", type=int, default=3, help="how often the swarm goes through the data")
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--width", type=int, default=16, help="channels of the first block")
parser.add_argument("--samples", type=int, default=60_000, help="train only on this number of first samples")
args = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(message)s")


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
        inner = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(inner + self.around(x))


def resnet(width: int) -> nn.Module:
    """Return a ResNet for 28 x 28 images."""
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


def read(kind: str) -> tuple[Tensor, Tensor]:
    """Return the images and labels of the ``train`` or ``t10k`` set."""
    arrays = []
    for name, header in ((f"{kind}-images-idx3-ubyte.gz", 16), (f"{kind}-labels-idx1-ubyte.gz", 8)):
        path = args.data / name
        if not path.is_file():
            parser.error(f"there is no {path}: apt-get install dataset-fashion-mnist, or say --data DIR")
        arrays.append(np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header))
    images = torch.tensor(arrays[0]).view(-1, 1, 28, 28).float().div_(255).sub_(0.2860).div_(0.3530)
    return images, torch.tensor(arrays[1]).long()


def accuracy(images: Tensor, labels: Tensor) -> float:
    """Return the share of the images that the model names right, in %."""
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(part.to(peer.device)).argmax(1).cpu() for part in images.split(500)])
    model.train()
    return 100 * (found == labels).float().mean().item()


with peers.join() as peer:
    model = resnet(args.width).to(peer.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=1e-4)
    peer.attach(model, optimizer)

    images, labels = read("train")
    dataset = TensorDataset(images[: args.samples], labels[: args.samples])
    for inputs, targets in peer.batches(dataset, args.batch_size, args.epochs):
        loss = F.cross_entropy(model(inputs), targets)
        peer.log(loss=loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if peer.step % 100 == 0:
            print(f"step {peer.step}: loss {loss.item():.3f}", flush=True)

    disagreement = peer.consensus()
    print(f"test accuracy {accuracy(*read('t10k')):.2f}% (replicas apart by {disagreement:.1e})", flush=True)
