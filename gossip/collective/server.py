"""A parameter server: one peer, the centre, holds the model; the others send it their moves and get the model back.

A worker sends the change that its step made to its model, in chunks: move k, chunk i. The centre adds each chunk to the
model, once, and answers with that chunk of the updated model, which replaces the worker's own. Chunks do not wait for
each other, workers do not wait for each other, and the centre waits for no worker: the exchange is asynchronous, down
to single chunks.

**Exactly once.** The centre keeps, for each worker in its present life, the number of its latest move and which chunks
of it have been added. A chunk that comes again is answered again, and not added again. A worker continues with the next
move when all chunks of this one are answered. A worker that is declared dead and returns in a new life does not know
which part of its last move was added, and sends nothing more of it. So a move is never added twice, and may be lost in
part when a life ends.

Chunks with NaN or infinity are answered, but not added: otherwise all peers would get them at once.

A worker's death does not affect the others. The centre's death ends the run: `Stranded`. The centre's own trainer
provides the model: its first vector. Chunks that come before that are not answered, and come again. Memory at the
centre: the model once, and a chunk per answer in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from gossip import events
from gossip.collective.attempt import piece_elements
from gossip.collective.interface import Call, Said
from gossip.errors import InvariantError
from gossip.values.blocks import Values, is_finite
from gossip.values.pool import Pool
from gossip.wire.messages import Address, Chunk, Subject

__all__ = ["CENTRE", "ParameterServer"]

#: The lowest rank of the founders, in its first life and in no other; where founders draw their lives, not this one.
CENTRE = Address(0, 0)


@dataclass
class _Worker:
    life: int
    move: int = -1
    added: set[int] = field(default_factory=set)


class ParameterServer:
    """One peer's part: the centre's or a worker's."""

    def __init__(self, me: Address, pool: Pool, *, first: float, ceiling: float, lives_drawn: bool = False) -> None:
        """Make this peer the centre if it is rank 0 in its first life, otherwise a worker.

        Args:
            me: this peer.
            pool: the source of memory for chunks.
            first: seconds until an unanswered chunk is sent again.
            ceiling: the largest such interval, in seconds.
            lives_drawn: whether this peer is a founder that drew its life, as the others did. Life 0 of another one
                means then that nothing has been heard of it.
        """
        self._me = me
        #: The centre; None while its life is not known.
        self._centre: Address | None = CENTRE
        if lives_drawn:
            self._centre = me if me.rank == CENTRE.rank else None
        self._pool = pool
        self._first, self._ceiling = first, ceiling
        self._interval = first
        self._again_at = 0.0
        self._move = -1
        self._pending: Values | None = None
        #: Chunks of this worker's move that are not answered yet.
        self._unanswered: dict[int, Values] = {}
        self._stranded = False
        #: The model, at the centre; and the centre's books of each worker.
        self._model: Values | None = None
        self._workers: dict[int, _Worker] = {}
        #: The number of chunks that were not added, because they were not finite.
        self.refused = 0
        self._out: deque[Said | events.Effect] = deque()

    @property
    def called(self) -> bool:
        """Return False: nobody waits for others."""
        return False

    @property
    def deadline(self) -> float | None:
        """The time at which chunks are sent again."""
        return self._again_at if self._unanswered and not self._stranded else None

    def handle(self, call: Call, now: float) -> None:
        """Take in a request of the trainer."""
        match call:
            case events.Synchronize(number):
                self._out.append(events.Synchronized(number, None))
            case events.Withdraw():
                self._out.append(events.Withdrawn())
            case events.Reduce(values):
                if self._pending is not None or values.ndim != 1 or not values.size:
                    raise InvariantError(
                        f"Reduce with a move of shape {values.shape}: it must be a flat vector, and only one at a time"
                    )
                self._move += 1
                if self._me == self._centre:
                    self._out.append(self._own(values))
                else:
                    self._pending = values
                    self._post(values, now)

    def _own(self, values: Values) -> events.Effect:
        """Treat the centre's own move like that of a worker; its first vector is the model."""
        finite = is_finite(values)
        if self._model is None:
            self._model = values.copy()
        elif finite:
            self._model += values
            values[:] = self._model
        else:
            values[:] = self._model
        return events.Reduced(self._move, 1, finite)

    def _post(self, values: Values, now: float) -> None:
        for index, (start, stop) in enumerate(_bounds(values)):
            part = self._pool.take(stop - start, values.dtype)
            part[:] = values[start:stop]
            self._unanswered[index] = part
        self._out.extend(self._chunks())
        self._progress(now)

    def _chunks(self) -> list[Chunk]:
        """Return the chunks that are not answered; none while nobody knows whom to send them to."""
        if self._centre is None:
            return []
        chunks = self._unanswered.items()
        return [Chunk(self._me, self._centre, Subject.MOVE, self._move, 0, 0, index, part) for index, part in chunks]

    def receive(self, message: Said, me: Address, members: Mapping[int, int], now: float) -> None:
        """Take in a chunk: a worker's move, or the centre's answer."""
        del members
        if not isinstance(message, Chunk):
            return
        if message.subject is Subject.MOVE and me == self._centre and self._model is not None:
            self._add(message, self._model)
        elif message.subject is Subject.MODEL and message.origin == self._centre and message.round == self._move:
            self._answered(message, now)

    def _add(self, chunk: Chunk, model: Values) -> None:
        worker = self._workers.get(chunk.origin.rank)
        if worker is None or worker.life < chunk.origin.incarnation:
            worker = self._workers[chunk.origin.rank] = _Worker(chunk.origin.incarnation)
        if chunk.round < worker.move or chunk.index >= len(bounds := _bounds(model)):
            return  # answered before, or not of this model
        start, stop = bounds[chunk.index]
        if chunk.values.nbytes != (stop - start) * model.itemsize:
            return
        if chunk.round > worker.move:
            worker.move, worker.added = chunk.round, set()
        if chunk.index not in worker.added:
            worker.added.add(chunk.index)
            part = chunk.values.view(model.dtype)
            if is_finite(part):
                model[start:stop] += part
            else:
                self.refused += 1
        fresh = self._pool.take(stop - start, model.dtype)
        fresh[:] = model[start:stop]
        self._out.append(Chunk(self._me, chunk.origin, Subject.MODEL, chunk.round, 0, 0, chunk.index, fresh))

    def _answered(self, chunk: Chunk, now: float) -> None:
        if self._pending is None or chunk.index not in self._unanswered:
            return
        start, stop = _bounds(self._pending)[chunk.index]
        if chunk.values.nbytes != (stop - start) * self._pending.itemsize:
            return
        self._pending[start:stop] = chunk.values.view(self._pending.dtype)
        del self._unanswered[chunk.index]
        self._progress(now)
        if not self._unanswered:
            finite = is_finite(self._pending)
            self._pending = None
            self._out.append(events.Reduced(self._move, 1, finite))

    def _progress(self, now: float) -> None:
        self._interval = self._first
        self._again_at = now + self._first

    def work(self, me: Address, members: Mapping[int, int], now: float) -> Iterator[Said | events.Effect]:
        """Yield the chunks to send, for the first time or again, and effects."""
        if me != self._me:
            if self._me == self._centre:
                self._stranded = True
                yield events.Stranded("others had given this peer up, which is the centre, and have ended")
            self._me = me
            # Only the former life could know which chunks of its last move were added.
            self._unanswered = {index: np.zeros_like(part) for index, part in self._unanswered.items()}
            self._out.extend(self._chunks())
        life = members.get(CENTRE.rank)
        if self._centre is None and life:
            self._centre = Address(CENTRE.rank, life)
            self._out.extend(self._chunks())
        gone = life is None or (self._centre is not None and life != self._centre.incarnation)
        if me != self._centre and gone and not self._stranded:
            self._stranded = True
            yield events.Stranded(
                f"the centre, rank {CENTRE.rank}, is gone, and the model with it: that is what parameter-server "
                "depends on. Start the run again, from a checkpoint if there is one, or with an algorithm that has no "
                "centre, such as osgp"
            )
        for rank in [rank for rank, worker in self._workers.items() if members.get(rank) != worker.life]:
            del self._workers[rank]
        while self._out:
            yield self._out.popleft()
        deadline = self.deadline
        if deadline is not None and deadline <= now:
            self._interval = min(self._ceiling, 2 * self._interval)
            self._again_at = now + self._interval
            yield from self._chunks()


def _bounds(values: Values) -> list[tuple[int, int]]:
    step = piece_elements(values.size, values.itemsize)
    return [(start, min(start + step, values.size)) for start in range(0, values.size, step)]
