"""A script as a user of Lightning would write it, for tests: it trains a small model and says what came of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from comeback import Comeback, end_process
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

import peers
from peers.integrations.lightning import GossipStrategy


class Stopped(Exception):
    """Training is over before its time."""


class Line(lightning.LightningModule):
    """Fits a line; the rate goes down by a cosine, in steps or in epochs."""

    def __init__(self, interval: str) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.interval = interval
        self.estimated = 0

    def training_step(self, batch: Any) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        self.estimated = int(self.trainer.estimated_stepping_batches)
        steps = self.estimated if self.interval == "step" else self.trainer.max_epochs
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


class Notes(Callback):
    """Keeps what happens."""

    def __init__(self, stop_at: int, comeback: Comeback) -> None:
        self.stop_at, self.comeback = stop_at, comeback
        self.rates: list[float] = []
        self.validated: list[float] = []

    def on_train_start(self, *_: Any) -> None:
        self.comeback.attached()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        if trainer.global_step == int(os.environ.get("KILL_AT", "-1")):
            end_process()
        if trainer.global_step == self.stop_at:
            raise Stopped
        self.comeback.after_step(trainer.global_step)

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        if not trainer.sanity_checking:
            self.validated.append(float(trainer.callback_metrics["val_loss"]))


def main(output: str, options: dict[str, Any], settings: dict[str, Any], stop_at: int = -1) -> dict[str, Any]:
    """Train, and return what came of it."""
    torch.set_num_threads(1)
    options = dict(options)
    interval, workers = options.pop("interval", "step"), options.pop("workers", 0)
    inputs = torch.randn(96, 2, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, inputs @ torch.tensor([[1.0], [-2.0]]) + 0.5)
    with peers.join(alone=True, **settings) as peer:
        module, notes = Line(interval), Notes(stop_at, Comeback(output, peer.rank))
        trainer = lightning.Trainer(
            strategy=GossipStrategy(peer),
            accelerator="cpu",
            callbacks=[notes, ModelCheckpoint(dirpath=Path(output) / "checkpoints")],
            logger=CSVLogger(output, name="log", version=f"of-{peer.rank}"),
            enable_progress_bar=False,
            enable_model_summary=False,
            gradient_clip_val=1.0,
            log_every_n_steps=1,
            **options,
        )
        loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=workers)
        trainer.fit(module, loader, DataLoader(data, batch_size=32))
        return {
            "rank": peer.rank,
            "first": peer.is_first,
            "estimated": module.estimated,
            "steps": trainer.global_step,
            "peer_steps": peer.step,
            "samples": peer.samples,
            "fraction": peer.progress.fraction,
            "rates": notes.rates,
            "validated": notes.validated,
            "weights": module.layer.weight.detach().flatten().tolist(),
            "logs": (Path(output) / "log" / f"of-{peer.rank}" / "metrics.csv").exists(),
        }


if __name__ == "__main__":
    said = main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))
    sys.stdout.write(json.dumps(said) + "\n")
