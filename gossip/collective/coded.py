"""One compressed average, carried out at one place: every part goes to its owner and comes back as a mean.

The plans of `gossip.collective.plans` add up on the way, and sums of what a codec carries would have to be encoded
again at every hop, with another error each time. So a compressed average goes directly. Each place owns an n-th of the
vector:

    step 0    each place encodes its values of a part, with what it still owes, and sends them to the part's owner
    step 1    the owner decodes and adds up in the order of the places, encodes the mean, with what it still owes, and
              sends the same bytes to everybody

All decode the same bytes, the owner included, so all end with the same bits. A place sends n - 1 payloads of an n-th of
the vector in each step: 2 (n-1)/n encoded vectors, as in a ring, in two rounds instead of 2 (n-1), and as many
messages. An owner puts its own values in as it would send them: every peer's count alike, and a survivor that is left
alone goes on by the same rule.

The vector is of ``lossy`` gradients, which go through the codec, and of others (buffers, flags), which go as they are.
A *cell* is some of the one and some of the other, and travels as

    1 byte: 1, or 0 if the gradients are not finite    their payload, if they are    the others, raw

A cell that is not finite at one place is not finite in the average either, and everybody gets to know it.

As in `gossip.collective.attempt` nothing is acknowledged; what was sent is kept, and sent again to whoever lacks it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gossip.codecs import Payload
from gossip.collective.attempt import Outgoing, piece_elements
from gossip.collective.residuals import Residuals
from gossip.errors import Reason, Rejected
from gossip.values.blocks import Values, is_finite

__all__ = ["Cell", "CodedAttempt", "cells_of"]

_GATHER, _SPREAD = 0, 1
_BAD, _GOOD = 0, 1


class Cell(NamedTuple):
    """A range of gradients, and one of other values, that an owner averages."""

    owner: int
    start: int
    stop: int
    plain_start: int
    plain_stop: int


class _Content(NamedTuple):
    """What a cell holds: gradients, None if they are not finite, and other values."""

    gradients: Values | None
    plain: Values


@lru_cache(maxsize=16)
def cells_of(n: int, lossy: int, size: int, itemsize: int) -> tuple[Cell, ...]:
    """Return the cells of a vector, the same at every place."""
    longest = piece_elements(size, itemsize)
    cells = []
    for owner in range(n):
        start, stop = (lossy * edge // n for edge in (owner, owner + 1))
        plain_start, plain_stop = (lossy + (size - lossy) * edge // n for edge in (owner, owner + 1))
        pieces = math.ceil((stop - start + plain_stop - plain_start) / longest)
        for piece in range(pieces):
            first, last = ((stop - start) * edge // pieces for edge in (piece, piece + 1))
            plain_first, plain_last = ((plain_stop - plain_start) * edge // pieces for edge in (piece, piece + 1))
            cells.append(Cell(owner, start + first, start + last, plain_start + plain_first, plain_start + plain_last))
    return tuple(cells)


class CodedAttempt:
    """The work of one place at one compressed average; to the reduction it is what `Attempt` is."""

    #: What the values of `sums` are to be divided by: nothing, for they are means.
    divisor = 1

    def __init__(
        self, residuals: Residuals, n: int, place: int, values: Values, lossy: int, keys: tuple[int, ...]
    ) -> None:
        """Begin; ``values`` are this place's own, and are only read, until `finish`.

        Args:
            residuals: what this peer owes.
            n: how many take part.
            place: this one's.
            values: the vector.
            lossy: how many of them, from the first on, go through the codec.
            keys: what draws depend on, beside the cell.
        """
        self.n = n
        self._place = place
        self._own = values
        self._codec = residuals.codec
        self._keys = keys
        self._draft = residuals.begin(n, place, lossy, values.dtype)
        self._cells = cells_of(n, lossy, values.size, values.itemsize)
        #: What was sent, by step and cell.
        self._bodies: dict[tuple[int, int], Payload] = {}
        #: What has come for our cells and is not added up yet, by cell and place.
        self._waiting: dict[tuple[int, int], _Content] = {}
        #: Of our cells the sum, and of how many places, in their order, it is.
        self._sums: dict[int, _Content] = {}
        self._added = dict.fromkeys((index for index, cell in enumerate(self._cells) if cell.owner == place), 0)
        self._means: dict[int, _Content] = {}
        self._result: Values | None = None

    @property
    def finished(self) -> bool:
        """Whether all cells hold the mean."""
        return len(self._means) == len(self._cells)

    def start(self) -> Iterator[Outgoing]:
        """Encode and send all cells, those of the next place first: not everybody begins with the same owner."""
        for index in sorted(
            range(len(self._cells)), key=lambda one: (self._cells[one].owner - self._place - 1) % self.n
        ):
            cell = self._cells[index]
            own = self._own[cell.start : cell.stop]
            coded = self._draft.put(cell.start, own, (*self._keys, _GATHER, index)) if own.size else None
            plain = self._own[cell.plain_start : cell.plain_stop]
            if cell.owner == self._place:
                carried = coded.carried if coded is not None else None if own.size else own
                self._waiting[index, self._place] = _Content(carried, plain)
                yield from self._advance(index)
            else:
                body = self._bodies[_GATHER, index] = _body(own.size, None if coded is None else coded.payload, plain)
                yield Outgoing(cell.owner, _GATHER, index, body)

    def arrived(self, sender: int, step: int, cell: int, body: Payload) -> Iterator[Outgoing]:
        """Take a cell in, if it is one that is still to come, and do what that allows; `Rejected` if it is none."""
        if not 0 <= cell < len(self._cells) or sender == self._place or cell in self._means:
            return
        owner = self._cells[cell].owner
        if step == _GATHER and owner == self._place:
            if sender >= self._added[cell] and (cell, sender) not in self._waiting:
                self._waiting[cell, sender] = self._read(cell, body)
                yield from self._advance(cell)
        elif step == _SPREAD and owner == sender:
            self._means[cell] = self._read(cell, body)

    def lacking(self) -> Iterator[tuple[int, int, int]]:
        """Yield what each cell waits for, as place, step and cell."""
        for index, cell in enumerate(self._cells):
            if cell.owner != self._place and index not in self._means:
                yield cell.owner, _SPREAD, index
            elif cell.owner == self._place:
                for place in range(self._added[index], self.n):
                    if (index, place) not in self._waiting:
                        yield place, _GATHER, index

    def again(self, receiver: int, step: int, cell: int) -> Outgoing | None:
        """Return what was sent once, if it was."""
        body = self._bodies.get((step, cell))
        if body is None or (step == _GATHER and self._cells[cell].owner != receiver):
            return None
        return Outgoing(receiver, step, cell, body)

    def finish(self, out: Values) -> bool:
        """Write the mean over all places to ``out``; return whether it is finite."""
        for index, (_, start, stop, plain_start, plain_stop) in enumerate(self._cells):
            gradients, plain = self._means[index]
            out[start:stop] = np.nan if gradients is None else gradients
            out[plain_start:plain_stop] = plain
        # Kept in memory of its own: ``out`` is the trainer's, and the mean may be asked for later.
        self._result = out.copy()
        return bool(is_finite(out))

    def sums(self) -> tuple[list[int], list[Values]]:
        """Return what `finish` wrote: bounds, and the values between them."""
        assert self._result is not None, "it is finished"
        return [0, self._result.size], [self._result]

    def _advance(self, index: int) -> Iterator[Outgoing]:
        """Add up what has come, in the order of the places; hand the mean out when it is whole."""
        cell = self._cells[index]
        while (content := self._waiting.pop((index, self._added[index]), None)) is not None:
            self._sums[index] = self._sum(self._sums.get(index), content)
            self._added[index] += 1
        if self._added[index] < self.n:
            return
        total = self._sums.pop(index)
        with np.errstate(over="ignore", invalid="ignore"):
            plain = total.plain * self._own.dtype.type(1 / self.n)
            mean = None if total.gradients is None else total.gradients * self._own.dtype.type(1 / self.n)
        coded = None
        if mean is not None and mean.size:
            coded = self._draft.hand_out(cell.start, mean, (*self._keys, _SPREAD, index))
            mean = None if coded is None else coded.carried
        self._means[index] = _Content(mean, plain)
        body = _body(cell.stop - cell.start, None if coded is None else coded.payload, plain)
        self._bodies[_SPREAD, index] = body
        for place in range(self.n):
            if place != self._place:
                yield Outgoing(place, _SPREAD, index, body)

    def _sum(self, before: _Content | None, content: _Content) -> _Content:
        if before is None:
            return _Content(None if content.gradients is None else content.gradients.copy(), content.plain.copy())
        with np.errstate(over="ignore", invalid="ignore"):
            plain = np.add(before.plain, content.plain, out=before.plain)
            if before.gradients is None or content.gradients is None:
                return _Content(None, plain)
            return _Content(np.add(before.gradients, content.gradients, out=before.gradients), plain)

    def _read(self, index: int, body: Payload) -> _Content:
        """Return what a body says, or raise `Rejected`."""
        cell = self._cells[index]
        count, behind = cell.stop - cell.start, (cell.plain_stop - cell.plain_start) * self._own.itemsize
        if body.size < 1 + behind:
            raise Rejected(Reason.TRUNCATED, f"a cell of {body.size} bytes instead of {1 + behind} or more")
        payload, plain = body[1 : body.size - behind], body[body.size - behind :]
        values: Values = np.frombuffer(plain.tobytes(), self._own.dtype)
        if body[0] == _BAD and not payload.size and count:
            return _Content(None, values)
        if body[0] != _GOOD:
            raise Rejected(Reason.MALFORMED, f"a cell of kind {body[0]} with {payload.size} bytes of gradients")
        if not count and payload.size:
            raise Rejected(Reason.OVERSIZED, f"{payload.size} bytes for no gradients")
        return _Content(self._codec.decode(payload, count, self._own.dtype) if count else self._own[:0], values)


def _body(count: int, payload: Payload | None, plain: Values) -> Payload:
    """Return a cell of so many gradients as bytes."""
    kind = np.array([_BAD if count and payload is None else _GOOD], np.uint8)
    raw = np.ascontiguousarray(plain).view(np.uint8)
    return np.concatenate([kind, raw] if payload is None else [kind, payload, raw])
