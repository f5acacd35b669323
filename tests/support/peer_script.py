"""A training script, as a user writes one: the same however it is started. Options and results are JSON.

python peer_script.py '{"out": "where.json", ...}': what it takes is below, what is left over goes to `peers.join`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import peers


def digest(state: Any) -> Any:
    """Return a nested state with its tensors as exact text."""
    if isinstance(state, torch.Tensor):
        return [str(state.dtype), state.double().flatten().tolist()]
    if isinstance(state, dict):
        return {str(key): digest(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [digest(value) for value in state]
    return state


def written(peer: peers.Peer) -> None:
    """Wait for the checkpoint that is being written, or how many there are would be a matter of chance."""
    checkpoints = peer._attached().saving._checkpoints
    if checkpoints is not None:
        checkpoints.wait()


def train(
    out: str = "",
    seed: int = 0,
    samples: int = 96,
    epochs: int = 3,
    kill_at: int = 0,
    interrupt_at: int = 0,
    announce: str = "",
    announce_at: int = 3,
    heard: str = "",
    stop_file: str = "",
    consensus: bool = True,
    **join: Any,
) -> dict[str, Any]:
    """Train a small net with dropout, momentum and a scheduler; return all that a run leaves.

    The file ``announce`` is written after so many steps, and ``heard`` once the launcher knows that this peer trains.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 6, generator=generator)
    y = (x @ torch.randn(6, 3, generator=generator)).argmax(1)
    seen: list[int] = []
    with peers.join(**join) as peer:
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
        peer.attach(model, optimizer, also={"scheduler": scheduler})
        began, first = peer.step, digest(model.state_dict())
        if heard and peer._reporter._channel is not None:
            # The launcher reads in order what a peer tells it, and answers a card: so it has read the status by then.
            peer._reporter._channel.exchange(peer._cards[peer.rank])
            Path(heard.format(rank=peer.rank)).touch()
        for index, inputs, labels in peer.batches(TensorDataset(torch.arange(samples), x, y), 8, epochs):
            written(peer)
            if interrupt_at and peer.step == interrupt_at - 1:
                signal.raise_signal(signal.SIGINT)  # in the middle of a step
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            seen += index.tolist()
            peer.log(loss=loss)
            if announce and peer.step == began + announce_at:
                Path(announce).write_text(str(peer.step))
            if kill_at and peer.step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if stop_file and Path(stop_file).exists():
                break
        result = {
            "rank": peer.rank,
            "world_size": peer.world_size,
            "began": began,
            "first": first,
            "step": peer.step,
            "samples": peer.samples,
            "seen": seen,
            "disagreement": peer.consensus(1e-3, 60.0) if consensus else None,
            "agreed": peer.step,
            "view": list(peer.view),
            "weight": peer.weight,
            "model": digest(model.state_dict()),
            "optimizer": digest(optimizer.state_dict()),
            "scheduler": digest(scheduler.state_dict()),
            "draw": float(torch.rand(1)),
        }
    if out:
        Path(out.format(rank=peer.rank)).write_text(json.dumps(result))
    return result


if __name__ == "__main__":
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    train(**json.loads(sys.argv[1]))
