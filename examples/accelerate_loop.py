"""Handwritten digits in a loop of accelerate: a stock script and the diff of docs/guide/accelerate.md.

    python examples/accelerate_loop.py                        # alone
    gossip launch -n 4 examples/accelerate_loop.py            # four peers
    torchrun --nproc-per-node 4 examples/accelerate_loop.py

Needs gossip-runtime[accelerate,examples].
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

import peers
from peers.integrations.accelerate import GossipAccelerator


def main(peer: peers.Peer) -> None:
    """Train, evaluate and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--accumulate", type=int, default=1, help="batches of a step")
    parser.add_argument("--precision", default="no", choices=["no", "bf16"])
    parser.add_argument(
        "--step-seconds", type=float, default=0.0, help="make a batch take longer, as a large model would"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="", help="a file for the model")
    args = parser.parse_args()

    accelerator = GossipAccelerator(peer, gradient_accumulation_steps=args.accumulate, mixed_precision=args.precision)
    torch.manual_seed(args.seed)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images).float() / 16, torch.tensor(labels))
    train, held_out = random_split(data, [1437, 360], generator=torch.Generator().manual_seed(0))
    loader = DataLoader(train, batch_size=16, shuffle=True)
    held_out_loader = DataLoader(held_out, batch_size=360)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps = args.epochs * -(-len(loader) // args.accumulate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model, optimizer, loader, held_out_loader, scheduler = accelerator.prepare(
        model, optimizer, loader, held_out_loader, scheduler
    )

    for _ in range(args.epochs):
        model.train()
        for images, labels in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(images), labels)
                time.sleep(args.step_seconds)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    peer.consensus()
    model.eval()
    for images, labels in held_out_loader:
        with torch.no_grad():
            logits = model(images)
        right = (logits.argmax(1) == labels).float().mean()
        accelerator.print(f"held out: loss {F.cross_entropy(logits, labels):.4f}, accuracy {right:.4f}")
    if args.output:
        accelerator.save(accelerator.unwrap_model(model).state_dict(), args.output)


if __name__ == "__main__":
    with peers.join(alone=True) as peer:
        main(peer)
