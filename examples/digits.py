"""Handwritten digits: a small network on scikit-learn's bundled data, in seconds.

    python examples/digits.py                        # alone
    gossip launch -n 4 examples/digits.py            # four peers
    gossip launch -n 4 --straggler 2=4x --fault kill:1@60 --restart 1 examples/digits.py

The three lines that make this loop a peer's are marked.
"""

import argparse
import logging
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import peers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=20, help="how often the swarm goes through the data")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--step-seconds", type=float, default=0.0, help="make a step take longer, as a large model would")
args = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(message)s")

images, labels = load_digits(return_X_y=True)
x = torch.tensor(images, dtype=torch.float32) / 16
y = torch.tensor(labels)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
train, test = order[:1437], order[1437:]


def accuracy() -> float:
    """Return the share of the test images that the model names right, in %."""
    model.eval()
    with torch.no_grad():
        right = (model(x[test].to(peer.device)).argmax(1).cpu() == y[test]).float().mean()
    model.train()
    return 100 * right.item()


with peers.join() as peer:  # 1: who am I, and where are the others?
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10)).to(peer.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
    peer.attach(model, optimizer)  # 2: from here on optimizer.step() also gossips

    # 3: the loop ends when the swarm as a whole has seen all epochs; fast peers do more of them.
    for inputs, targets in peer.batches(TensorDataset(x[train], y[train]), args.batch_size, args.epochs):
        loss = F.cross_entropy(model(inputs), targets)
        peer.log(loss=loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(args.step_seconds)

    own = accuracy()
    disagreement = peer.consensus()
    print(
        f"{peer.step} steps: own model {own:.1f}%, average of all {accuracy():.1f}% (apart by {disagreement:.1e})",
        flush=True,
    )
