"""What one peer has claimed of the work of a loop, and how far it is with that: the part that all loops have in common.

The work of a loop is a number of batches, in chunks that `Progress` shares out. What a batch is made of is the loop's
own: samples by their indices, whatever a stream yields next, or one shard.

A batch is counted at two moments. It is *handed out* when the trainer gets it. `samples` and `state` count these,
because a checkpoint is written after the step that used the batch. It is *consumed* when the trainer asks for the next
one. Only then a chunk is marked as done and the others learn of it, because a peer that dies during a step has not done
it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from peers.crew.crew import Crew
from peers.data.progress import WINDOW, Progress, ProgressError

__all__ = ["BatchPlace", "Claims"]

#: magic, samples, epoch, chunk, batches of it that were handed out (0: no chunk has begun); the progress follows
_STATE = struct.Struct("<4sQQQQ")
_MAGIC = b"gba1"


class BatchPlace(NamedTuple):
    """A chunk that has begun, and the number of its batches that the trainer has got."""

    epoch: int
    chunk: int
    handed: int


class Claims:
    """What one peer does of a loop. For the trainer's thread, and the progress for the gossip thread too."""

    def __init__(
        self,
        batches: int,
        epochs: int,
        key: int,
        *,
        rank: int = 0,
        ranks: Callable[[], Collection[int]] | None = None,
        on_progress: Callable[[], None] | None = None,
        crew: Crew | None = None,
    ) -> None:
        """Begin with nothing done.

        Args:
            batches: The number of batches of an epoch.
            epochs: The number of epochs.
            key: What peers must agree on, as a number; see `Progress`.
            rank: The rank of this peer.
            ranks: Returns the live ranks in this peer's present view; by default only this peer.
            on_progress: Called in the trainer's thread when this peer has done a chunk, so `progress.encode()` has
                changed.
            crew: The processes that hold this peer's replica. Its lead row claims.
        """
        #: The chunks that the swarm has done: merge the others' progress into it, and send them what it encodes.
        self.progress = Progress(batches, epochs, key=key)
        self.rank, self.ranks = rank, ranks or (lambda: (rank,))
        self._on_progress = on_progress or (lambda: None)
        self._crew = crew or Crew.single()
        #: The number of samples that were handed to this peer's trainer.
        self.samples = 0
        #: The chunk that has begun, if there is one.
        self.place: BatchPlace | None = None

    def batch(self, place: BatchPlace) -> int:
        """Return the number of the batch that was handed out last at a place."""
        return self.progress.span(place.chunk)[place.handed - 1]

    def places(self, check: Callable[[], None] = lambda: None) -> Iterator[BatchPlace]:
        """Yield the batches of the chunk that has begun, then those of the chunks that are claimed.

        Args:
            check: Called before each claim; may raise an error.
        """
        own = self._own_places(check)
        while True:
            # The rows hear of what others did in swarms of their own, and at different times. The lead row's news hold.
            found, complete = self._crew.decide(lambda: (next(own, None), self.progress.epoch))
            if not self._crew.is_lead:
                self.progress.follow(complete)
            if found is None:
                return
            place = BatchPlace(*found)
            if not self._crew.is_lead:
                self.progress.claim(place.epoch, place.chunk)
            yield place

    def done(self, place: BatchPlace) -> bool:
        """Return whether the chunk of a place is done by now, by whichever peer."""
        return self._crew.decide(lambda: self.progress.done(place.epoch, place.chunk))

    def _own_places(self, check: Callable[[], None]) -> Iterator[BatchPlace]:
        place = self.place
        while True:
            if place is None:
                check()
                claim = self.progress.next_chunk(self.rank, self.ranks())
                if claim is None:
                    return
                place = BatchPlace(*claim, 0)
            else:
                self.progress.claim(place.epoch, place.chunk)
            for handed in range(place.handed + 1, len(self.progress.span(place.chunk)) + 1):
                if self.progress.done(place.epoch, place.chunk):
                    break
                yield place._replace(handed=handed)
            place = None

    def hand_out(self, place: BatchPlace, samples: int) -> None:
        """Note that the trainer gets a batch."""
        self.place = place
        self.samples += samples

    def consumed(self) -> None:
        """Note that the trainer asks for the next batch. If the one before was the last of a chunk, that is done."""
        place = self.place
        if place and place.handed == len(self.progress.span(place.chunk)):
            self.place = None
            if self.progress.mark(place.epoch, place.chunk):
                self._on_progress()

    def state(self, *, finished: bool = True) -> bytes:
        """Return this peer's position, for a checkpoint: after the step on the batch that was handed out last.

        Args:
            finished: Whether the trainer is through with that batch. Otherwise it is handed out again.
        """
        place = self.place or BatchPlace(0, 0, 0)
        if not finished:
            place = place._replace(handed=max(place.handed - 1, 0))
        return _STATE.pack(_MAGIC, self.samples, *place) + self.progress.encode()

    def restore(self, state: bytes) -> None:
        """Continue from a `state`. Call it before the first batch; the run may have more epochs than it had then.

        Raises:
            ProgressError: If the state is damaged, or of another data set, batch size or seed. Nothing has changed
                then.
        """
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
        self.samples, self.place = samples, BatchPlace(epoch, chunk, handed) if handed else None
