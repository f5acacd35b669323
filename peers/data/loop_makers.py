"""The kinds of loops over data, and which of them a call asks for. What cannot be is refused in the call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gossip.errors import SettingsError
from peers.crew.crew import Crew
from peers.data.batches import Batches
from peers.data.data_news import Loop
from peers.data.dataset_checks import check_of_indexed, count_of_stream, counted, is_count, is_stream
from peers.data.fingerprints import sketch_of
from peers.data.progress import Progress
from peers.data.shard_names import ShardNames
from peers.data.split import Split
from peers.data.stream_batches import StreamBatches
from peers.data.stream_reading import opens_parts

__all__ = ["LoopMaker", "LoopPeer", "LoopSource", "for_batches", "for_shards"]


class LoopSource(Protocol):
    """What a loop yields at this peer, and how far the swarm and this peer are with it."""

    #: Whether the script makes many steps with one of what it yields, so that it cannot be stopped only in between.
    long: bool
    #: What the swarm has done.
    progress: Progress
    #: The samples that the swarm goes through.
    total_samples: int

    @property
    def samples(self) -> int:
        """The samples that this peer's trainer has got."""

    def __iter__(self) -> Iterator[Any]: ...

    def state(self) -> bytes:
        """Return this peer's position, for a checkpoint."""

    def restore(self, state: bytes) -> None:
        """Continue from a position."""


@dataclass(frozen=True)
class LoopPeer:
    """The peer that a loop is made for."""

    #: The key of the order, another one in each loop and the same at every peer.
    seed: int
    rank: int
    #: Returns the live ranks in its present view.
    ranks: Callable[[], Collection[int]]
    crew: Crew
    #: Where tensors are moved to.
    device: torch.device
    #: Is called when it has done a part of the loop, in the trainer's thread.
    on_progress: Callable[[], None]
    #: Is called with a sentence that the user should read.
    warn: Callable[[str], None]
    #: Is called with a number that stands for the beginning of a stream, once it is known.
    on_beginning: Callable[[float], None]


@dataclass(frozen=True)
class LoopMaker:
    """A loop that can begin, and what other peers are told of it."""

    make: Callable[[LoopPeer], LoopSource]
    dataset: Any
    samples: int
    batch_size: int
    #: Of a stream: 0.
    epochs: int
    #: Whether it is a stream of which each peer reads other samples from the start on.
    distinct: bool = False

    def told(self, index: int) -> Loop:
        """Return what other peers are told of it, as the loop of this number."""
        return Loop(index, self.samples, self.batch_size, self.epochs, sketch_of(self.dataset) if self.epochs else None)


def for_batches(
    dataset: Any,
    batch_size: int,
    epochs: int | None,
    samples: int | None,
    steps: int | None,
    crew: Crew,
    *,
    sharded: bool,
    drop_last: bool,
    split: str,
    loader: dict[str, Any],
) -> LoopMaker:
    """Return the loop over a data set or a stream; see `Peer.batches`.

    Raises:
        SettingsError: If the swarm cannot go through it so; the message says what to do.
    """
    Split(split, crew, batch_size)
    if is_stream(dataset):
        count = count_of_stream(dataset, batch_size, epochs, samples, steps, crew, loader)

        def of_stream(peer: LoopPeer) -> LoopSource:
            return StreamBatches(
                dataset,
                batch_size,
                count,
                sharded=sharded,
                seed=peer.seed,
                rank=peer.rank,
                ranks=peer.ranks,
                device=peer.device,
                on_progress=peer.on_progress,
                warn=peer.warn,
                on_beginning=peer.on_beginning,
                drop_last=drop_last,
                **loader,
            )

        if sharded and opens_parts(dataset):
            raise SettingsError(
                f"sharded={sharded} is for streams that are sharded by themselves, and {type(dataset).__name__} is a "
                "function that opens one part of a stream. Leave it out"
            )
        distinct = sharded or opens_parts(dataset)
        return LoopMaker(of_stream, dataset, count * batch_size, batch_size, 0, distinct)
    check_of_indexed(dataset, epochs, samples, steps, sharded=sharded)
    assert epochs is not None
    n, _ = counted(dataset, batch_size, epochs, drop_last, loader)

    def of_indexed(peer: LoopPeer) -> LoopSource:
        return Batches(
            dataset,
            batch_size,
            epochs,
            seed=peer.seed,
            rank=peer.rank,
            ranks=peer.ranks,
            crew=peer.crew,
            device=peer.device,
            on_progress=peer.on_progress,
            drop_last=drop_last,
            split=split,
            **loader,
        )

    return LoopMaker(of_indexed, dataset, n, batch_size, epochs)


def for_shards(shards: Sequence[Any], epochs: int) -> LoopMaker:
    """Return the loop over data shards; see `Peer.shards`.

    Raises:
        SettingsError: If these are no shards, or there is none.
    """
    if isinstance(shards, str | bytes) or not isinstance(shards, Sequence) or not shards:
        raise SettingsError(
            f"shards: {shards!r:.80} is not a list of shards. Give the names of all of them, in the same order at "
            "every peer: sorted(glob.glob('data/train-*.tar'))"
        )
    if not is_count(epochs):
        raise SettingsError(f"epochs must be a whole number of at least 1, not {epochs!r}")
    names = list(shards)  # if the script changes its list during the loop, the other peers do not hear of it

    def of_shards(peer: LoopPeer) -> LoopSource:
        return ShardNames(
            names,
            epochs,
            seed=peer.seed,
            rank=peer.rank,
            ranks=peer.ranks,
            crew=peer.crew,
            on_progress=peer.on_progress,
        )

    return LoopMaker(of_shards, names, len(names), 1, epochs)
