"""One compressed average, carried out at one place: every part goes to its owner and comes back as a mean.

The plans of `gossip.collective.reduction_plans` add values up at every hop. With a codec, each of these sums would have
to be encoded again, with another error each time. So a compressed average uses direct messages. Each place owns an n-th
of the vector:

    step 0    each place encodes its values of a part, plus its residual, and sends them to the part's owner
    step 1    the owner decodes and adds up in the order of the places, encodes the mean, plus its residual, and sends
              the same bytes to all places

All places decode the same bytes, including the owner, so all end with the same bits. A place sends n - 1 payloads of an
n-th of the vector in each step: 2 (n-1)/n encoded vectors, as in a ring, in two rounds instead of 2 (n-1), and the same
number of messages. An owner encodes its own values too: so the values of all peers count alike, and a survivor that is
left alone follows the same rule.

The first ``lossy`` values of the vector are gradients, which go through the codec. The others (buffers, flags) are sent
uncompressed. A *cell* consists of some gradients and some other values. Its format is

    1 byte: 1, or 0 if the gradients are not finite    their payload, if they are finite    the others, raw

If a cell is not finite at one place, the average is not finite either, and all places learn that.

As in `gossip.collective.attempt`, nothing is acknowledged. Sent chunks are kept, and sent again to places that lack
them.
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
    """A range of gradients and a range of other values that an owner averages."""

    owner: int
    start: int
    stop: int
    plain_start: int
    plain_stop: int


class _Content(NamedTuple):
    """The content of a cell: gradients, or None if they are not finite, and other values."""

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
    """The work of one place at one compressed average. It has the interface of `Attempt`."""

    #: The divisor of the values of `sums`: they are means already.
    divisor = 1

    def __init__(
        self, residuals: Residuals, n: int, place: int, values: Values, lossy: int, keys: tuple[int, ...]
    ) -> None:
        """Begin. ``values`` are this place's own; they are read until `finish`, and never changed.

        Args:
            residuals: the residuals of this peer.
            n: the number of places.
            place: this peer's place.
            values: the vector.
            lossy: the number of values, from the first on, that go through the codec.
            keys: the keys of draws, besides the cell.
        """
        self.n = n
        self._place = place
        self._own = values
        self._codec = residuals.codec
        self._keys = keys
        self._draft = residuals.begin(n, place, lossy, values.dtype)
        self._cells = cells_of(n, lossy, values.size, values.itemsize)
        #: The bodies that were sent, by step and cell.
        self._bodies: dict[tuple[int, int], Payload] = {}
        #: The contents that arrived for this place's own cells and are not added up yet, by cell and place.
        self._waiting: dict[tuple[int, int], _Content] = {}
        #: The sums of this place's own cells, and the number of places, in their order, that they contain.
        self._sums: dict[int, _Content] = {}
        self._added = dict.fromkeys((index for index, cell in enumerate(self._cells) if cell.owner == place), 0)
        self._means: dict[int, _Content] = {}
        self._result: Values | None = None

    @property
    def finished(self) -> bool:
        """Whether all cells hold the mean."""
        return len(self._means) == len(self._cells)

    def start(self) -> Iterator[Outgoing]:
        """Encode and send all cells, those of the next place first, so that not all begin with the same owner."""
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
        """Take in a cell if it is still missing, and yield the cells that can be sent now; or raise `Rejected`."""
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
        """Yield the missing transfers as place, step and cell."""
        for index, cell in enumerate(self._cells):
            if cell.owner != self._place and index not in self._means:
                yield cell.owner, _SPREAD, index
            elif cell.owner == self._place:
                for place in range(self._added[index], self.n):
                    if (index, place) not in self._waiting:
                        yield place, _GATHER, index

    def again(self, receiver: int, step: int, cell: int) -> Outgoing | None:
        """Return a cell that was sent before, if it was."""
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
        # Kept in separate memory: ``out`` belongs to the trainer, and others may ask for the mean later.
        self._result = out.copy()
        return bool(is_finite(out))

    def sums(self) -> tuple[list[int], list[Values]]:
        """Return the values that `finish` wrote: bounds, and the values between them."""
        assert self._result is not None, "it is finished"
        return [0, self._result.size], [self._result]

    def _advance(self, index: int) -> Iterator[Outgoing]:
        """Add up the contents that have arrived, in the order of the places; send the mean when it is complete."""
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
        """Return the content of a body, or raise `Rejected`."""
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
            raise Rejected(Reason.OVERSIZED, f"{payload.size} bytes of gradients in a cell without gradients")
        return _Content(self._codec.decode(payload, count, self._own.dtype) if count else self._own[:0], values)


def _body(count: int, payload: Payload | None, plain: Values) -> Payload:
    """Return the bytes of a cell of ``count`` gradients."""
    kind = np.array([_BAD if count and payload is None else _GOOD], np.uint8)
    raw = np.ascontiguousarray(plain).view(np.uint8)
    return np.concatenate([kind, raw] if payload is None else [kind, payload, raw])
