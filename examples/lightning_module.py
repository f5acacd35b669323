"""Handwritten digits with the Trainer of Lightning: a stock script and the diff of docs/guide/lightning.md.

    python examples/lightning_module.py                        # alone
    gossip launch -n 4 examples/lightning_module.py            # four peers
    torchrun --nproc-per-node 4 examples/lightning_module.py

Needs gossip-runtime[lightning,examples].
"""

import argparse
import time
from typing import Any

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

import peers
from peers.integrations.lightning import GossipStrategy


class Digits(lightning.LightningModule):
    """Two layers, trained by SGD whose rate goes down by a cosine."""

    def __init__(self, step_seconds: float) -> None:
        super().__init__()
        self.step_seconds = step_seconds
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """Return the loss of a batch."""
        loss = F.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("train_loss", loss)
        time.sleep(self.step_seconds)
        return loss

    def validation_step(self, batch: list[Tensor]) -> None:
        """Log the loss of a batch, and how much of it is right."""
        logits = self.layers(batch[0])
        self.log("val_loss", F.cross_entropy(logits, batch[1]))
        self.log("val_accuracy", (logits.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> Any:
        """Return the optimizer and its schedule."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        steps = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main(peer: peers.Peer) -> None:
    """Train, and validate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--accumulate", type=int, default=1, help="batches of a step")
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--workers", type=int, default=0, help="processes that load data")
    parser.add_argument(
        "--step-seconds", type=float, default=0.0, help="make a batch take longer, as a large model would"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="runs/lightning_module")
    args = parser.parse_args()

    lightning.seed_everything(args.seed)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images).float() / 16, torch.tensor(labels))
    train, held_out = random_split(data, [1437, 360], generator=torch.Generator().manual_seed(0))
    loader = DataLoader(train, batch_size=16, shuffle=True, num_workers=args.workers)
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        accumulate_grad_batches=args.accumulate,
        gradient_clip_val=1.0,
        precision=args.precision,
        default_root_dir=args.output,
        logger=CSVLogger(args.output),
        enable_progress_bar=False,
        enable_model_summary=False,
        strategy=GossipStrategy(peer),
    )
    module = Digits(args.step_seconds)
    trainer.fit(module, loader, DataLoader(held_out, batch_size=360))
    trainer.validate(module, DataLoader(held_out, batch_size=360))


if __name__ == "__main__":
    with peers.join(alone=True) as peer:
        main(peer)
