"""Reads one peer's part of a stream, in the workers of a data loader or in the trainer's own process.

The workers of all peers are numbered: worker w of W, at the peer that is the i-th of n, has the part i W + w of n W.
How a stream is shared out among the parts is the script's choice:

- **A stream that is the same everywhere** (an iterable): each worker reads all of it and takes every n W-th sample. The
  count goes on over the end of the stream, so no part is empty. When peers come or go, i and n change from then on.
  Torch's `get_worker_info` says nothing meanwhile: a stream that leaves out samples for the sake of other workers would
  lose them.
- **A function that opens a part**, ``(part, parts)``: each worker reads its own part alone, and opens it anew with the
  i and n of then. In place of an empty part, as with more parts than files, it reads the whole as above.
- **A stream that is sharded already**: each worker takes all that it yields, and `get_worker_info` tells of the workers
  of this peer.

A stream that ends is begun anew. If it yields nothing then, as a generator that is used up, it has ended.

A position counts what was read of the stream, not what was taken of it. So it stays right when n changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset, default_collate, get_worker_info
from torch.utils.data._utils import worker as torch_worker

from peers.data.fingerprints import sketch_of

__all__ = ["Collation", "Position", "StreamBatch", "StreamReading", "StreamSeat", "opens_parts"]

_BITS = 32
_END = object()
#: The samples of a stream that are compared with those of other peers.
_BEGINNING = 4


def opens_parts(stream: Any) -> bool:
    """Whether a stream is a function that opens a part of it."""
    return callable(stream) and not hasattr(stream, "__iter__")


class Position(NamedTuple):
    """How far a worker has read: how often the stream has ended, the samples since then, and those of all passes."""

    passes: int = 0
    read: int = 0
    total: int = 0
    #: What was opened: a part, and of how many.
    part: int = 0
    parts: int = 1


class StreamSeat:
    """What the trainer and the workers of a peer share: its index among all that read, their number, and a sketch.

    Workers see changes at once.
    """

    def __init__(self, *, in_workers: bool) -> None:
        # One number, since of two a worker could read one before a change and the other one after it.
        self._packed = torch.tensor([1], dtype=torch.int64)
        self._sketch = torch.tensor([math.nan], dtype=torch.float64)
        if in_workers:
            for one in (self._packed, self._sketch):
                one.share_memory_()  # type: ignore[no-untyped-call]

    def change(self, index: int, count: int) -> None:
        """Let this peer be the one with this index among a number of peers."""
        self._packed[0] = index << _BITS | count

    def now(self) -> tuple[int, int]:
        """Return the index and the count."""
        packed = int(self._packed[0])
        return packed >> _BITS, packed & ((1 << _BITS) - 1)

    def saw(self, beginning: list[Any]) -> None:
        """Note how the stream begins."""
        sketch = sketch_of(beginning)
        self._sketch[0] = math.nan if sketch is None else sketch

    @property
    def sketch(self) -> float | None:
        """A number that stands for the beginning of the stream; None if it is not known, or says nothing."""
        sketch = float(self._sketch[0])
        return None if math.isnan(sketch) or not sketch else sketch


class _Sample(NamedTuple):
    value: Any
    #: The worker that has read it, and where it was then.
    worker: int
    position: Position


class StreamBatch(NamedTuple):
    """A batch, the number of its samples, the worker that has made it, and where that was then."""

    content: Any
    samples: int
    worker: int
    position: Position


class Collation:
    """The ``collate_fn`` of a loader whose samples know where they come from."""

    def __init__(self, collate: Callable[[list[Any]], Any] | None) -> None:
        """Wrap the script's own function, or torch's."""
        self._collate = collate or default_collate

    def __call__(self, samples: Sequence[_Sample]) -> StreamBatch:
        """Return the samples as a batch."""
        content = self._collate([sample.value for sample in samples])
        return StreamBatch(content, len(samples), samples[-1].worker, samples[-1].position)


class StreamReading(IterableDataset[_Sample]):
    """What the workers of one peer's loader read."""

    def __init__(self, stream: Any, seat: StreamSeat, workers: int, *, sharded: bool) -> None:
        """Prepare to read.

        Args:
            stream: an iterable, or a function that opens a part of it.
            seat: where this peer sits among the others.
            workers: the number of processes that read; 1 if the trainer reads itself.
            sharded: whether the stream yields other samples at each peer and in each worker by itself.
        """
        self._stream, self._seat, self._workers, self._sharded = stream, seat, workers, sharded
        #: Where each worker goes on, and which one makes the first batch: torch always begins with its number 0.
        self.positions = [Position()] * workers
        self.first = 0

    def __iter__(self) -> Iterator[_Sample]:
        info = get_worker_info()
        worker = ((0 if info is None else info.id) + self.first) % self._workers
        position = self.positions[worker]

        def told() -> AbstractContextManager[None]:
            if info is None:
                return nullcontext()
            return _worker_info(replace(info, id=worker) if self._sharded else None)

        while True:
            with told():
                source, part, parts = self._opened(worker, position.passes)
            # What was read of another part says nothing of this one.
            read = position.read if (part, parts) == (position.part, position.parts) else 0
            takes_turns = parts == 1 and not self._sharded
            index, beginning = 0, list[Any]()
            looks = not (worker or position.passes or (takes_turns and opens_parts(self._stream)))
            while True:
                with told():
                    value = next(source, _END)
                if value is _END:
                    break
                index += 1
                if looks and index <= _BEGINNING:
                    beginning.append(value)
                    if index == _BEGINNING:
                        self._seat.saw(beginning)
                if index <= read:
                    continue
                position = Position(position.passes, index, position.total + 1, part, parts)
                if not takes_turns or self._is_own(position.total - 1, worker):
                    yield _Sample(value, worker, position)
            if not index:
                return
            position = Position(position.passes + 1, 0, position.total)

    def _opened(self, worker: int, passes: int) -> tuple[Iterator[Any], int, int]:
        """Return the samples of one pass over a part, and which part that is."""
        if not opens_parts(self._stream):
            own = (worker, self._workers) if self._sharded else (0, 1)
            return _from_the_start(self._stream, passes), *own
        index, count = self._seat.now()
        part, parts = index * self._workers + worker, count * self._workers
        source = _from_the_start(self._stream(part, parts), passes)
        first = next(source, _END)
        if first is _END:
            return _from_the_start(self._stream(0, 1), passes), 0, 1
        return chain([first], source), part, parts

    def _is_own(self, number: int, worker: int) -> bool:
        index, count = self._seat.now()
        return number % (count * self._workers) == index * self._workers + worker


def _from_the_start(stream: Any, passes: int) -> Iterator[Any]:
    """Begin a pass. Streams that shuffle have another order in each epoch, by a convention of torch's samplers."""
    if passes and callable(getattr(stream, "set_epoch", None)):
        stream.set_epoch(passes)
    return iter(stream)


@contextmanager
def _worker_info(info: Any) -> Iterator[None]:
    """Let `get_worker_info` return this for a moment."""
    before, torch_worker._worker_info = torch_worker._worker_info, info
    try:
        yield
    finally:
        torch_worker._worker_info = before
