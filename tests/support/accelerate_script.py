"""A script as a user of accelerate would write it, for tests: it trains a small model and says what came of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from comeback import end_process
from torch.utils.data import DataLoader, TensorDataset

import peers
from peers.integrations.accelerate import GossipAccelerator


class Stopped(Exception):
    """Training is over before its time."""


def data(size: int = 100) -> TensorDataset:
    """Return points beside a line."""
    inputs = torch.randn(size, 2, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, inputs @ torch.tensor([[1.0], [-2.0]]) + 0.5)


def main(output: str, options: dict[str, Any], settings: dict[str, Any], stop_at: int = -1) -> dict[str, Any]:
    """Train, and return what came of it."""
    torch.set_num_threads(1)
    epochs, kill_at = options.pop("epochs", 4), int(os.environ.get("KILL_AT", "-1"))
    rates, norms, losses = [], [], []
    with peers.join(alone=True, **settings) as peer:
        accelerator = GossipAccelerator(peer, gradient_accumulation_steps=2, mixed_precision="bf16", **options)
        torch.manual_seed(peer.rank)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(data(), batch_size=4, shuffle=True)
        held_out = DataLoader(data(), batch_size=32)
        steps = epochs * -(-len(loader) // 2) if options.get("interval", "step") == "step" else epochs
        scheduler: Any = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        model, optimizer, loader, held_out, scheduler = accelerator.prepare(
            model, optimizer, loader, held_out, scheduler
        )
        for _ in range(epochs):
            model.train()
            for x, y in loader:
                with accelerator.accumulate(model):
                    loss = torch.nn.functional.mse_loss(model(x).float(), y)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        norms.append(float(accelerator.clip_grad_norm_(model.parameters(), 1.0)))
                    before = peer.step
                    optimizer.step()
                    if options.get("interval", "step") == "step":
                        scheduler.step()
                    optimizer.zero_grad()
                if peer.step > before:
                    rates.append(scheduler.get_last_lr()[0])
                    if peer.step == kill_at:
                        end_process()
                    if peer.step == stop_at:
                        raise Stopped
            model.eval()
            with torch.no_grad():
                losses.append(float(torch.stack([((model(x) - y) ** 2).mean() for x, y in held_out]).mean()))
        peer.consensus()
        accelerator.wait_for_everyone()
        accelerator.save(accelerator.unwrap_model(model).state_dict(), str(Path(output) / f"of-{peer.rank}.pt"))
        written: list[int] = []
        accelerator.on_main_process(lambda: written.append(peer.rank))()
        return {
            "rank": peer.rank,
            "first": [peer.is_first, accelerator.is_main_process, PartialState().is_main_process, bool(written)],
            "processes": accelerator.num_processes,
            "dtype": str(model.weight.dtype),
            "steps": peer.step,
            "clipped": len(norms),
            "samples": peer.samples,
            "rates": rates,
            "losses": losses,
            "whole": sum(len(x) for x, _ in held_out),
            "weights": model.weight.detach().flatten().tolist(),
        }


if __name__ == "__main__":
    said = main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))
    sys.stdout.write(json.dumps(said) + "\n")
