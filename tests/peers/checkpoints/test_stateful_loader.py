"""torchdata's StatefulDataLoader in a loop of the script's own: its position is in the checkpoints, to the batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from swarms import Meeting
from torch import nn
from torch.utils.data import IterableDataset, get_worker_info

from peers import Peer

torchdata = pytest.importorskip("torchdata.stateful_dataloader")

# torchdata 0.11 calls a function that torch 2.13 has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

EPOCHS, SAMPLES, SIZE = 2, 40, 4


class Failed(Exception):
    """As a crash of the script."""


class Stream(IterableDataset[int]):
    """A stream that knows where it is, and leaves out what other workers have."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        samples = range(start, SAMPLES, step)
        while self.at < len(samples):
            self.at += 1
            yield samples[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def loader_of(kind: str, workers: int, peer: Peer) -> Any:
    draws = torch.Generator().manual_seed(0)
    options = {"batch_size": SIZE, "num_workers": workers, "generator": draws}
    if kind == "stream":
        return torchdata.StatefulDataLoader(Stream(), **options)
    return torchdata.StatefulDataLoader(range(SAMPLES), sampler=peer.sampler(SAMPLES), **options)


def trained(run: Path, kind: str, workers: int, fails_at: int | None, **setup: Any) -> tuple[int, list[list[int]]]:
    """Train; return the step at which it began, and the batches."""
    batches: list[list[int]] = []
    with Meeting(1).peer(0, run_dir=str(run), checkpoint_every=3, **setup) as peer:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = loader_of(kind, workers, peer)
        peer.attach(model, optimizer, also={"loader": loader})
        began = peer.step
        for _ in range(began // (SAMPLES // SIZE), EPOCHS):
            for batch in loader:
                checkpoints = peer._attached().saving._checkpoints
                assert checkpoints is not None
                checkpoints.wait()
                model(batch.float()[:, None]).sum().backward()
                optimizer.step()
                batches.append(batch.tolist())
                if peer.step == fails_at:
                    raise Failed
        peer.consensus()
    return began, batches


@pytest.mark.parametrize(("kind", "workers"), [("samples", 0), ("stream", 0), ("samples", 2), ("stream", 2)])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_resumed_loader_goes_on_with_the_batch_after_the_checkpoint(tmp_path: Path, kind: str, workers: int) -> None:
    _, whole = trained(tmp_path / "whole", kind, workers, None)
    assert len(whole) == EPOCHS * SAMPLES // SIZE
    for fails_at, resumes_at in ((8, 6), (17, 15)) if not workers else ((8, 6),):
        run = tmp_path / f"{fails_at}"
        with pytest.raises(Failed):
            trained(run, kind, workers, fails_at)
        assert trained(run, kind, workers, None, resume=True) == (resumes_at, whole[resumes_at:])
