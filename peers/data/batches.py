"""Batches for one peer's trainer, out of an epoch that the whole swarm shares.

`Batches` is a `DataLoader` whose batch sampler asks `Progress` for the next chunk. So a fast peer does more of the
epoch than a slow one, and the others do the chunks that a dead peer left. Workers of the loader claim ahead, in the
order in which the trainer gets the batches.

A batch is counted at two moments. It is *handed out* when the trainer gets it. `samples` and `state` count these,
because a checkpoint is written after the step that used the batch. It is *consumed* when the trainer asks for the next
one. Only then a chunk is marked as done and the others learn of it, because a peer that dies during a step has not done
it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader

from peers.crew.crew import Crew
from peers.data.dataset_checks import counted
from peers.data.progress import WINDOW, Progress, ProgressError
from peers.data.sampler import shuffled
from peers.data.split import Split
from peers.data.workers import ServingWorker
from topologies.draws import draw

__all__ = ["Batches", "to_device"]

#: magic, samples, epoch, chunk, batches of it that were handed out (0: no chunk has begun); the progress follows
_STATE = struct.Struct("<4sQQQQ")
_MAGIC = b"gba1"


class _Place(NamedTuple):
    """A chunk that has begun, and the number of its batches that the trainer has got."""

    epoch: int
    chunk: int
    handed: int


class Batches:
    """The batches that this peer contributes to the swarm's epochs. The iteration ends when the swarm has done all.

    A new loop continues with the batch after the last one of the loop before.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        epochs: int,
        *,
        seed: int = 0,
        rank: int = 0,
        ranks: Callable[[], Collection[int]] | None = None,
        drop_last: bool = False,
        crew: Crew | None = None,
        split: str = "none",
        device: torch.device | str | None = None,
        on_progress: Callable[[], None] | None = None,
        **loader: Any,
    ) -> None:
        """Prepare the batches of all epochs.

        Args:
            dataset: Any object with a length and an index, the same at every peer.
            batch_size: The number of samples in a batch.
            epochs: The number of times that the swarm goes through the data set.
            seed: The key of the order of the samples, the same at every peer.
            rank: The rank of this peer.
            ranks: Returns the live ranks in this peer's present view; by default only this peer.
            drop_last: Leave out the last batch of an epoch if it is not full.
            crew: The processes that hold this peer's replica. Its lead row claims, and all rows get the same batches...
            split: ...whole ("none"), a part of the samples each ("batch"), or a part of the image rows ("rows").
            device: The device to which tensors are moved; by default they stay where they are.
            on_progress: Called in the trainer's thread when this peer has done a chunk, so `progress.encode()` has
                changed.
            loader: Options of `DataLoader`: `num_workers`, `pin_memory`, `collate_fn` and so on.
        """
        self._n, batches = counted(dataset, batch_size, epochs, drop_last, loader)
        #: The number of samples that the swarm goes through in all epochs.
        self.total_samples = epochs * min(self._n, batches * batch_size)
        self._dataset = dataset
        self._batch_size, self._seed, self._rank = batch_size, seed, rank
        self._ranks = ranks or (lambda: (rank,))
        self._crew = crew or Crew.single()
        self._split = Split(split, self._crew, batch_size)
        self._device, self._pinned = device, bool(loader.get("pin_memory"))
        self._on_progress = on_progress or (lambda: None)
        #: The chunks that the swarm has done: merge the others' progress into it, and send them what it encodes.
        self.progress = Progress(batches, epochs, key=draw(seed, self._n, batch_size))
        #: The number of samples that were handed to this peer's trainer.
        self.samples = 0
        self._place: _Place | None = None
        #: The batches that the loader has claimed and the trainer has not got yet.
        self._ahead: deque[_Place] = deque()
        #: The number of loops over this object so far: only the latest continues.
        self._loop = 0
        # A separate generator: making an iterator draws a seed for the workers, and the trainer's random numbers must
        # not depend on how often a run was interrupted.
        self._generator = torch.Generator()
        loader["worker_init_fn"] = ServingWorker(loader.get("worker_init_fn"))
        self._loader: DataLoader[Any] = DataLoader(
            dataset, batch_sampler=_Claims(self), generator=self._generator, **loader
        )

    def __iter__(self) -> Iterator[Any]:
        # The traceback of an exception may still hold the loop that it left, so a new loop simply takes over.
        self._loop = loop = self._loop + 1
        ahead: deque[_Place] = deque()
        self._ahead = ahead
        self.progress.release()
        self._generator.manual_seed(draw(self._seed, self._rank, self.samples) >> 1)
        self._consumed()
        for batch in self._loader:
            place = ahead.popleft()
            # The batch was loaded ahead, and meanwhile another peer has done its chunk.
            if self._crew.decide(lambda place=place: self.progress.done(place.epoch, place.chunk)):  # type: ignore[misc]
                continue
            self._place = place
            self.samples += len(self._positions(self.progress.span(place.chunk)[place.handed - 1]))
            batch = self._split.rows_of(batch)
            yield batch if self._device is None else to_device(batch, self._device, self._pinned)
            if loop != self._loop:
                raise RuntimeError("this loop over the batches has ended, because a second one has begun")
            self._consumed()

    def state(self) -> bytes:
        """Return this peer's position, for a checkpoint: after the step on the batch that was handed out last."""
        place = self._place or _Place(0, 0, 0)
        return _STATE.pack(_MAGIC, self.samples, *place) + self.progress.encode()

    def restore(self, state: bytes) -> None:
        """Continue from a `state`. Call it before the first batch; the run may have more epochs than it had then.

        Raises:
            ProgressError: If the state is damaged, or of another data set, batch size or seed. Nothing has changed
                then.
        """
        if self._loop or self._place or self.samples:
            raise RuntimeError("restore must be called before the first batch")
        if len(state) < _STATE.size or state[:4] != _MAGIC:
            raise ProgressError(
                f"a state of batches begins with {_MAGIC!r}, not with {bytes(state[:4])!r}: it is damaged, or of "
                "another version"
            )
        _, samples, epoch, chunk, handed = _STATE.unpack_from(state)
        progress = Progress(self.progress.batches, self.progress.epochs, self.progress.key)
        progress.merge(state[_STATE.size :], longer=True)
        last = min(progress.epoch + WINDOW, progress.epochs) - 1
        if handed and not (epoch <= last and chunk < progress.chunks and handed <= len(progress.span(chunk))):
            raise ProgressError(
                f"the state is at batch {handed} of chunk {chunk} of epoch {epoch}, which does not exist"
            )
        self.progress.merge(progress.encode())
        self.samples, self._place = samples, _Place(epoch, chunk, handed) if handed else None

    def _consumed(self) -> None:
        """Note that the trainer asks for the next batch. If the one before was the last of a chunk, that is done."""
        place = self._place
        if place and place.handed == len(self.progress.span(place.chunk)):
            self._place = None
            if self.progress.mark(place.epoch, place.chunk):
                self._on_progress()

    def _positions(self, batch: int) -> range:
        start = batch * self._batch_size
        return range(start, min(start + self._batch_size, self._n))

    def _claimed(self) -> Iterator[list[int]]:
        """Yield the indices of each batch, as the lead row of the crew claims them."""
        ahead, places = self._ahead, self._places()
        while True:
            # The rows hear of what others did in swarms of their own, and at different times. The lead row's news hold.
            found, complete = self._crew.decide(lambda: (next(places, None), self.progress.epoch))
            if not self._crew.is_lead:
                self.progress.follow(complete)
            if found is None:
                return
            place = _Place(*found)
            if not self._crew.is_lead:
                self.progress.claim(place.epoch, place.chunk)
            ahead.append(place)
            batch = self.progress.span(place.chunk)[place.handed - 1]
            positions = np.array(self._positions(batch), np.int64)
            indices: list[int] = shuffled(self._n, self._seed, place.epoch, positions).tolist()
            yield self._split.samples_of(indices)

    def _places(self) -> Iterator[_Place]:
        """Yield the batches of the chunk that has begun, then those of the chunks that are claimed."""
        place = self._place
        while True:
            if place is None:
                if len(self._dataset) != self._n:
                    raise ProgressError(
                        f"the data set had {self._n} samples when the loop over the batches began, and has "
                        f"{len(self._dataset)} now: the swarm shares out what there was. Begin a new loop to change it"
                    )
                claim = self.progress.next_chunk(self._rank, self._ranks())
                if claim is None:
                    return
                place = _Place(*claim, 0)
            else:
                self.progress.claim(place.epoch, place.chunk)
            for handed in range(place.handed + 1, len(self.progress.span(place.chunk)) + 1):
                if self.progress.done(place.epoch, place.chunk):
                    break
                yield place._replace(handed=handed)
            place = None


class _Claims:
    """The batch sampler. It can be iterated any number of times, and its length is unknown."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return self._batches._claimed()


def to_device(batch: Any, device: torch.device | str, non_blocking: bool = False) -> Any:
    """Return the batch with all tensors on the device, also within nested tuples, lists and dicts."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=non_blocking)
    if callable(getattr(batch, "to", None)):
        return batch.to(device)  # a packed sequence or a tokenizer's encoding moves itself
    if isinstance(batch, Mapping):
        return {key: to_device(value, device, non_blocking) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        items = [to_device(item, device, non_blocking) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch
