"""Images whose rows are shared by the processes of a crew: a small convolutional network on Fashion-MNIST's shape.

    python examples/rows.py                                 # alone: a crew of one has whole images
    gossip launch -n 4 --grid 2x2 examples/rows.py          # two replicas of two processes each

Each process passes its own rows through the network, and fetches the rows at its edges from its neighbours. The lines
that differ from the loop of a whole replica are marked.
"""

import argparse
import logging

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import peers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=3, help="how often the swarm goes through the data")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--images", type=int, default=1024, help="number of images to train with")


def stripes(count: int) -> TensorDataset:
    """Return images of noise with bright stripes; the label says how steep they are, so all rows matter."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 8, (count,), generator=draw)
    down, across = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    angle = labels[:, None, None] * (torch.pi / 8)
    waves = torch.sin(0.7 * (down * angle.cos() + across * angle.sin()))
    return TensorDataset((waves + torch.randn(count, 28, 28, generator=draw))[:, None], labels)


def net() -> nn.Module:
    """Return the network: nothing in it knows of rows."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 7 * 7, 10)),
    )


def main() -> None:
    """Train."""
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)  # the same at all rows of a crew: dropout draws alike
    with peers.join() as peer:
        model = net().to(peer.device)
        peers.split_rows(model, peer.crew.mesh)  # 1: from here on the model takes rows of images
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
        peer.attach(model, optimizer)
        # 2: each process gets its rows of the images, and all labels
        for x, y in peer.batches(stripes(args.images), args.batch_size, args.epochs, split="rows"):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            peer.log(loss=loss)
        peer.consensus()


if __name__ == "__main__":
    main()
