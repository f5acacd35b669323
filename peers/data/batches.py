"""Batches for one peer's trainer, out of an epoch that the whole swarm shares.

`Batches` is a `DataLoader` whose batch sampler asks `Progress` for the next chunk. So a fast peer does more of the
epoch than a slow one, and the others do the chunks that a dead peer left. Workers of the loader claim ahead, in the
order in which the trainer gets the batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from peers.crew.crew import Crew
from peers.data.claims import BatchPlace, Claims
from peers.data.dataset_checks import counted
from peers.data.progress import ProgressError
from peers.data.sampler import shuffled
from peers.data.split import Split
from peers.data.workers import ServingWorker
from topologies.draws import draw

__all__ = ["Batches", "to_device"]


class Batches:
    """The batches that this peer contributes to the swarm's epochs. The iteration ends when the swarm has done all.

    A new loop continues with the batch after the last one of the loop before.
    """

    #: The script makes a step with each batch, or almost.
    long = False

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
        self._split = Split(split, crew or Crew.single(), batch_size)
        self._device, self._pinned = device, bool(loader.get("pin_memory"))
        key = draw(seed, self._n, batch_size)
        self._claims = Claims(batches, epochs, key, rank=rank, ranks=ranks, on_progress=on_progress, crew=crew)
        #: The chunks that the swarm has done.
        self.progress = self._claims.progress
        #: The batches that the loader has claimed and the trainer has not got yet.
        self._ahead: deque[BatchPlace] = deque()
        #: The number of loops over this object so far: only the latest continues.
        self._loop = 0
        # A separate generator: making an iterator draws a seed for the workers, and the trainer's random numbers must
        # not depend on how often a run was interrupted.
        self._generator = torch.Generator()
        loader["worker_init_fn"] = ServingWorker(loader.get("worker_init_fn"))
        self._loader: DataLoader[Any] = DataLoader(
            dataset, batch_sampler=_Claimed(self), generator=self._generator, **loader
        )

    @property
    def samples(self) -> int:
        """The number of samples that were handed to this peer's trainer."""
        return self._claims.samples

    def __iter__(self) -> Iterator[Any]:
        # The traceback of an exception may still hold the loop that it left, so a new loop simply takes over.
        self._loop = loop = self._loop + 1
        ahead: deque[BatchPlace] = deque()
        self._ahead = ahead
        self.progress.release()
        self._generator.manual_seed(draw(self._seed, self._rank, self.samples) >> 1)
        self._claims.consumed()
        for batch in self._loader:
            place = ahead.popleft()
            # The batch was loaded ahead, and meanwhile another peer has done its chunk.
            if self._claims.done(place):
                continue
            self._claims.hand_out(place, len(self._positions(self._claims.batch(place))))
            batch = self._split.rows_of(batch)
            yield batch if self._device is None else to_device(batch, self._device, self._pinned)
            if loop != self._loop:
                raise RuntimeError("this loop over the batches has ended, because a second one has begun")
            self._claims.consumed()

    def state(self) -> bytes:
        """Return this peer's position, for a checkpoint: after the step on the batch that was handed out last."""
        return self._claims.state()

    def restore(self, state: bytes) -> None:
        """Continue from a `state`. Call it before the first batch; the run may have more epochs than it had then.

        Raises:
            ProgressError: If the state is damaged, or of another data set, batch size or seed. Nothing has changed
                then.
        """
        if self._loop or self._claims.place or self.samples:
            raise RuntimeError("restore must be called before the first batch")
        self._claims.restore(state)

    def _positions(self, batch: int) -> range:
        start = batch * self._batch_size
        return range(start, min(start + self._batch_size, self._n))

    def _claimed(self) -> Iterator[list[int]]:
        """Yield the indices of each batch that is claimed."""
        ahead = self._ahead
        for place in self._claims.places(self._check_length):
            ahead.append(place)
            positions = np.array(self._positions(self._claims.batch(place)), np.int64)
            indices: list[int] = shuffled(self._n, self._seed, place.epoch, positions).tolist()
            yield self._split.samples_of(indices)

    def _check_length(self) -> None:
        if len(self._dataset) != self._n:
            raise ProgressError(
                f"the data set had {self._n} samples when the loop over the batches began, and has "
                f"{len(self._dataset)} now: the swarm shares out what there was. Begin a new loop to change it"
            )


class _Claimed:
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
