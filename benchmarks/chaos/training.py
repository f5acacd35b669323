"""The training itself: the digits example as users have it, with books kept of every parcel, and sabotage if asked for.

Beside what every peer writes, ``RUN/rank-R`` gets

- ``lives.jsonl``: a line for each process: its pid, rank, incarnation and endpoint;
- ``size``: the length of its flat parameters;
- ``loss``: the mean loss of the average of all on the example's test images, which is finer than their share that is
  named right;
- ``books.jsonl``: a line for each parcel booked, released or taken back, ``[kind, origin, destination, sequence,
  shard, weight]``, as the core says it, before anybody else hears of it.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch.nn import functional

import peers
from benchmarks.chaos.sabotage import Sabotage
from gossip import events
from peers.session.chronicle import Chronicle

__all__ = ["train"]

#: The images that the example trains on; the rest are its test images.
_TRAINED = 1437
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits.py"


class Books:
    """Writes down what became of each parcel."""

    def __init__(self) -> None:
        self._file: IO[str] | None = None
        self._early: list[str] = []

    def open(self, directory: Path) -> None:
        """Write to the peer's directory."""
        self._file = (directory / "books.jsonl").open("a", buffering=1)

    def saw(self, effect: events.Effect) -> None:
        """Note an effect, if it moves mass."""
        match effect:
            case events.Booked(parcel) | events.Released(parcel) | events.TakenBack(parcel):
                fields = (parcel.origin, parcel.destination, parcel.sequence, parcel.shard, parcel.weight)
                line = json.dumps([type(effect).__name__, *fields])
            case _:
                return
        if self._file is not None:
            self._file.write(line + "\n")


def train(arguments: list[str]) -> None:
    """Run the example; ``arguments`` are those of trainer.py, its name first."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sabotage", action="append", default=[])
    parser.add_argument("--padding", type=int, default=0)
    parser.add_argument("--checkpoints", type=json.loads, default={})
    args, rest = parser.parse_known_args(arguments[1:])
    torch.manual_seed(args.seed)
    books = Books()
    saboteur = Sabotage(args.sabotage)
    _overhear(books, saboteur)
    joined = peers.join

    def join(**more: Any) -> peers.Peer:
        peer = joined(**more)
        directory = peer._records.directory
        assert directory is not None
        books.open(directory)
        life = {
            "pid": os.getpid(),
            "rank": peer.rank,
            "incarnation": peer._setup.incarnation,
            "endpoint": str(peer._transport.endpoint),
            "time": time.time(),
        }
        with (directory / "lives.jsonl").open("a") as file:
            file.write(json.dumps(life) + "\n")
        saboteur.attend(peer)
        if place := args.checkpoints.get(str(peer.rank)):
            (directory / "checkpoints").symlink_to(place)
        _watch_attach(peer, args.padding)
        # The bars say how far apart the peers are; a peer that ended here would leave no model to judge.
        peer.consensus = partial(peer.consensus, must_agree=False)  # type: ignore[method-assign]
        _watch_consensus(peer)
        return peer

    _replace(join)
    sys.argv = [str(EXAMPLE), *rest]
    runpy.run_path(str(EXAMPLE), run_name="__main__")


def _watch_attach(peer: peers.Peer, padding: int) -> None:
    """Record the length of the flat parameters; add ``padding`` MiB to the model, which a newcomer has to get."""
    attach = peer.attach

    def attached(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        if padding:
            # Not what the others have: only what differs is sent.
            model.register_buffer("padding", torch.full((padding << 20,), peer.rank, dtype=torch.uint8))
        attach(model, optimizer)
        assert peer._records.directory is not None
        (peer._records.directory / "size").write_text(str(peer._attached().replica.layout.size))

    peer.attach = attached  # type: ignore[method-assign,assignment]


def _watch_consensus(peer: peers.Peer) -> None:
    """Record the loss of the average of all on the example's test images."""
    consensus = peer.consensus

    def agreed() -> float:
        reached = consensus()
        images, labels = load_digits(return_X_y=True)
        test = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[_TRAINED:]
        model = peer._attached()._model
        model.eval()
        with torch.no_grad():
            inputs = torch.tensor(images[test], dtype=torch.float32) / 16
            loss = functional.cross_entropy(model(inputs), torch.tensor(labels[test]))
        model.train()
        assert peer._records.directory is not None
        (peer._records.directory / "loss").write_text(str(float(loss)))
        return reached

    peer.consensus = agreed  # type: ignore[method-assign,assignment]


def _replace(join: Callable[..., peers.Peer]) -> None:
    peers.join = join


def _overhear(books: Books, saboteur: Sabotage) -> None:
    """Hear every effect of the core, in the gossip thread, where the peer's own chronicle does."""
    saw = Chronicle.saw

    def overheard(self: Chronicle, effect: events.Effect, members: int) -> None:
        books.saw(effect)
        saboteur.saw(effect)
        saw(self, effect, members)

    Chronicle.saw = overheard  # type: ignore[method-assign]
