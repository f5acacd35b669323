"""Batches out of a stream, which has no length and no index: the swarm shares out how many there are, not which ones.

`Claims` counts batches as it does for a data set. But a batch that is claimed is whatever this peer's part of the
stream yields next. So the loop ends when the swarm as a whole has done its number of batches: also if a peer is slow,
dies or joins, since what it has not done is done by others.

**What a checkpoint holds.** Where each worker was in the stream after the last batch that the trainer got. A resumed
peer reads up to there without using it. That is exact if the stream is the same again, and the peers and workers are as
many. With another number of workers no sample is left out, but some come again. A part that a function opens is read
from its start if it is another one than before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgpack
import torch
from torch.utils.data import DataLoader

from peers.data.batches import to_device
from peers.data.claims import Claims
from peers.data.dataset_checks import StreamError, check_options
from peers.data.progress import ProgressError
from peers.data.stream_reading import Collation, Position, StreamBatch, StreamReading, StreamSeat
from peers.data.workers import ServingWorker
from topologies.draws import draw

__all__ = ["StreamBatches"]

_MAGIC = b"gst1"


class StreamBatches:
    """The batches that this peer contributes to a number that the swarm goes through."""

    #: The script makes a step with each batch, or almost.
    long = False

    def __init__(
        self,
        stream: Any,
        batch_size: int,
        batches: int,
        *,
        sharded: bool = False,
        seed: int = 0,
        rank: int = 0,
        ranks: Callable[[], Collection[int]] | None = None,
        device: torch.device | str | None = None,
        on_progress: Callable[[], None] | None = None,
        warn: Callable[[str], None] = lambda _: None,
        on_beginning: Callable[[float], None] = lambda _: None,
        **loader: Any,
    ) -> None:
        """Prepare the batches.

        Args:
            stream: Any iterable, or a function that opens a part of it.
            batch_size: The number of samples in a batch.
            batches: The number of batches after which the swarm is through.
            sharded: Whether the stream yields other samples at each peer and in each worker by itself.
            seed: Of the random numbers that workers draw; another one at each rank comes of it.
            rank: The rank of this peer.
            ranks: Returns the live ranks in this peer's present view; by default only this peer.
            device: The device to which tensors are moved; by default they stay where they are.
            on_progress: Called in the trainer's thread when this peer has done a chunk.
            warn: Called with a sentence if the stream ends before the swarm is through.
            on_beginning: Called once with a number that stands for the beginning of the stream.
            loader: Options of `DataLoader`.
        """
        check_options(loader)
        self._stream = stream
        #: The number of samples that the swarm goes through.
        self.total_samples = batches * batch_size
        self._rank, self._seed, self._warn = rank, seed, warn
        self._on_beginning: Callable[[float], None] | None = on_beginning
        self._claims = Claims(
            batches, 1, draw(seed, batches, batch_size, 1), rank=rank, ranks=ranks, on_progress=on_progress
        )
        #: The batches that the swarm has done, as chunks.
        self.progress = self._claims.progress
        self._device, self._pinned = device, bool(loader.get("pin_memory"))
        self._workers = max(1, loader.get("num_workers", 0))
        self._seat = StreamSeat(in_workers=bool(loader.get("num_workers")))
        self._reading = StreamReading(stream, self._seat, self._workers, sharded=sharded)
        self._generator = torch.Generator()  # see `Batches`
        loader["worker_init_fn"] = ServingWorker(loader.get("worker_init_fn"))
        loader["collate_fn"] = Collation(loader.get("collate_fn"))
        self._loader: DataLoader[Any] = DataLoader(
            self._reading, batch_size, generator=self._generator, **{**loader, "persistent_workers": False}
        )
        self._loop = 0

    @property
    def samples(self) -> int:
        """The number of samples that were handed to this peer's trainer."""
        return self._claims.samples

    def __iter__(self) -> Iterator[Any]:
        self._loop = loop = self._loop + 1
        self.progress.release()
        self._generator.manual_seed(draw(self._seed, self._rank, self.samples) >> 1)
        self._claims.consumed()
        loaded: Iterator[StreamBatch] | None = None
        for place in self._claims.places():
            self._take_seat()
            loaded = iter(self._loader) if loaded is None else loaded
            found = next(loaded, None)
            if found is None:
                self._ended()
                return
            self._claims.hand_out(place, found.samples)
            self._reading.positions[found.worker] = found.position
            self._reading.first = (found.worker + 1) % self._workers
            self._look()
            batch = found.content
            yield batch if self._device is None else to_device(batch, self._device, self._pinned)
            if loop != self._loop:
                raise RuntimeError("this loop over the batches has ended, because a second one has begun")
            self._claims.consumed()

    def _take_seat(self) -> None:
        live = sorted({*self._claims.ranks(), self._rank})
        self._seat.change(live.index(self._rank), len(live))

    def _look(self) -> None:
        if self._on_beginning is not None and (sketch := self._seat.sketch) is not None:
            self._on_beginning(sketch)
            self._on_beginning = None

    def _ended(self) -> None:
        """Say that the stream of this peer has no more."""
        name = type(self._stream).__name__
        if not any(position.total for position in self._reading.positions):
            raise StreamError(
                f"dataset: the stream {name} yields no sample at rank {self._rank}. Check what it reads; if it is "
                "sharded by the rank, each peer and each worker needs a shard of its own"
            )
        self._warn(
            f"the stream {name} has ended after {self.samples} samples at this peer, and cannot be begun anew. The "
            f"swarm has done {self.progress.fraction:.0%} of {self.total_samples} samples, and the other peers do the "
            "rest, as far as theirs go. An object whose __iter__ begins anew has no end, and a generator has"
        )

    def state(self) -> bytes:
        """Return this peer's position, for a checkpoint: after the step on the batch that was handed out last."""
        reading = self._reading
        packed: bytes = msgpack.packb([reading.first, reading.positions, self._claims.state()])
        return _MAGIC + packed

    def restore(self, state: bytes) -> None:
        """Continue from a `state`. Call it before the first batch.

        Raises:
            ProgressError: If the state is damaged, or of another loop. Nothing has changed then.
        """
        if self._loop or self.samples:
            raise RuntimeError("restore must be called before the first batch")
        first, positions, claims = _decoded(state)
        self._claims.restore(claims)
        if len(positions) != self._workers:
            # Nobody knows which samples the others would have read. From where the last one was, none is left out.
            first, positions = 0, [min(positions)] * self._workers
        self._reading.first, self._reading.positions = first, positions


def _decoded(state: bytes) -> tuple[int, list[Position], bytes]:
    if state[:4] != _MAGIC:
        raise ProgressError(
            f"a state of a stream begins with {_MAGIC!r}, not with {bytes(state[:4])!r}: it is damaged, or of a loop "
            "over something else"
        )
    try:
        first, found, claims = msgpack.unpackb(state[4:], max_map_len=0, max_ext_len=0)
        positions = [Position(*one) for one in found]
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProgressError(f"the state of a stream is damaged: {error!r:.80}") from None
    counts = [first, *(count for position in positions for count in position)]
    whole = all(type(count) is int and count >= 0 for count in counts) and isinstance(claims, bytes)
    if not whole or not first < len(positions):
        raise ProgressError(f"the state of a stream is damaged: {counts!r:.80} are not positions of workers")
    return first, positions, claims
