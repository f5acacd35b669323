"""One plan, carried out at one place: cell by cell, each as soon as its turn comes.

The vector is cut into *cells*, at the bounds of the plan's transfers and into pieces, equally at every place. For each
cell the plan is a small program: receive and add, send, receive and put, send. Cells do not wait for each other, so a
long vector flows through the rounds piece by piece.

The values of a cell are never changed, only replaced by new arrays, so a chunk in flight stays valid for any time. A
place that lacks a chunk asks for it, and the sender sends it again if the cell still has the values of the first time.
It always has: the array that replaces a cell after it was sent is computed, at the end of a chain, from what the
receiver of the chunk made of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gossip.collective.reduction_plans import plan
from gossip.values.blocks import Values, is_finite
from gossip.values.pool import Pool

__all__ = ["Attempt", "Outgoing", "cut", "piece_elements"]

#: A piece is a 16th of the vector, within these bounds: enough pieces to overlap, but not so small that headers
#: dominate.
_PIECES, _SMALLEST, _LARGEST = 16, 256 << 10, 4 << 20


class _Op(NamedTuple):
    step: int
    other: int
    sends: bool
    adds: bool


class Outgoing(NamedTuple):
    """A cell to send now: the receiving place, the step of the plan, the cell and its values."""

    place: int
    step: int
    cell: int
    values: Values


def piece_elements(size: int, itemsize: int) -> int:
    """Return the largest number of elements of a piece."""
    return max(1, min(max(size * itemsize // _PIECES, _SMALLEST), _LARGEST) // itemsize)


def cut(bounds: Sequence[int], longest: int) -> list[int]:
    """Return the bounds with more bounds in between, so that no range is longer than ``longest``."""
    out = [bounds[0]]
    for stop in bounds[1:]:
        start = out[-1]
        parts = -(-(stop - start) // longest)
        out += [start + (stop - start) * part // parts for part in range(1, parts + 1)]
    return out


@lru_cache(maxsize=16)
def _programs(name: str, n: int, size: int, place: int, itemsize: int) -> tuple[list[int], list[list[_Op]]]:
    """Return the bounds of all cells, and the program of one place for each cell; they are the same in every round."""
    rounds = plan(name, n, size).rounds
    edges = {bound for each in rounds for one in each for bound in (one.start, one.stop)}
    bounds = cut(sorted({0, size, *edges}), piece_elements(size, itemsize))
    programs: list[list[_Op]] = [[] for _ in bounds[1:]]
    for step, each in enumerate(rounds):
        for sender, receiver, start, stop, add in each:
            if place in (sender, receiver):
                op = _Op(step, receiver if sender == place else sender, sender == place, add)
                for cell in range(bisect_left(bounds, start), bisect_left(bounds, stop)):
                    programs[cell].append(op)
    return bounds, programs


class Attempt:
    """The work of one place at one plan."""

    def __init__(self, name: str, n: int, place: int, values: Values, pool: Pool) -> None:
        """Begin. ``values`` are this place's own; they are read until `finish`, and never changed."""
        self.n = n
        self._own = values
        self._pool = pool
        self.bounds, self._programs = _programs(name, n, values.size, place, values.itemsize)
        cells = len(self._programs)
        #: The number of operations done of each program, and the number of programs that are not finished.
        self._done = [0] * cells
        self._open = cells
        #: The present values of each cell; None: still this place's own.
        self._values: list[Values | None] = [None] * cells
        #: Values that arrived before their turn, by step and cell.
        self._early: dict[tuple[int, int], Values] = {}

    @property
    def divisor(self) -> int:
        """The divisor of the values of `sums`."""
        return self.n

    @property
    def finished(self) -> bool:
        """Whether all cells hold the sum."""
        return not self._open

    def start(self) -> Iterator[Outgoing]:
        """Yield the cells that can be sent before anything has arrived."""
        for cell in range(len(self._programs)):
            yield from self._advance(cell)

    def arrived(self, sender: int, step: int, cell: int, body: Values) -> Iterator[Outgoing]:
        """Take in a cell if it is still missing, and yield the cells that can be sent now."""
        itemsize = self._own.itemsize
        if 0 <= cell < len(self._programs) and body.nbytes == itemsize * (self.bounds[cell + 1] - self.bounds[cell]):
            values = body.view(self._own.dtype)
            to_come = self._programs[cell][self._done[cell] :]
            if any(op.step == step and op.other == sender and not op.sends for op in to_come):
                self._early[step, cell] = values
                yield from self._advance(cell)

    def lacking(self) -> Iterator[tuple[int, int, int]]:
        """Yield the missing transfers as place, step and cell."""
        for cell, program in enumerate(self._programs):
            if self._done[cell] < len(program):
                op = program[self._done[cell]]
                yield op.other, op.step, cell

    def again(self, receiver: int, step: int, cell: int) -> Outgoing | None:
        """Return a cell that was sent before, if it was sent and its values are still there."""
        if not 0 <= cell < len(self._programs):
            return None
        program, done = self._programs[cell], self._done[cell]
        for index, op in enumerate(program[:done]):
            if op.sends and op.step == step and op.other == receiver:
                replaced = any(not later.sends for later in program[index + 1 : done])
                return None if replaced else Outgoing(receiver, step, cell, self._sendable(cell))
        return None

    def finish(self, out: Values) -> bool:
        """Write the mean over all places to ``out``; return whether it is finite."""
        factor = out.dtype.type(1 / self.n)
        finite = True
        with np.errstate(over="ignore", invalid="ignore"):
            for cell in range(len(self._programs)):
                part = out[self.bounds[cell] : self.bounds[cell + 1]]
                # Kept in separate memory: ``out`` belongs to the trainer, and others may ask for the sum later.
                np.multiply(self._sendable(cell), factor, out=part)
                finite = finite and is_finite(part)
        return finite

    def sums(self) -> tuple[list[int], list[Values]]:
        """Return the finished sum: bounds, and the values between them."""
        return self.bounds, [self._sendable(cell) for cell in range(len(self._programs))]

    def _advance(self, cell: int) -> Iterator[Outgoing]:
        program = self._programs[cell]
        if self._done[cell] == len(program) > 0:
            return
        while self._done[cell] < len(program):
            op = program[self._done[cell]]
            if op.sends:
                self._done[cell] += 1
                self._open -= self._done[cell] == len(program)
                yield Outgoing(op.other, op.step, cell, self._sendable(cell))
                continue
            values = self._early.pop((op.step, cell), None)
            if values is None:
                return
            self._values[cell] = self._combined(cell, values, op.adds)
            self._done[cell] += 1
            self._open -= self._done[cell] == len(program)
        if not program:
            self._open -= 1

    def _combined(self, cell: int, values: Values, adds: bool) -> Values:
        fresh = self._pool.take(values.size, values.dtype)
        if adds:
            with np.errstate(over="ignore", invalid="ignore"):
                np.add(self._current(cell), values, out=fresh)
        else:
            fresh[:] = values
        return fresh

    def _current(self, cell: int) -> Values:
        values = self._values[cell]
        return self._own[self.bounds[cell] : self.bounds[cell + 1]] if values is None else values

    def _sendable(self, cell: int) -> Values:
        """Return the cell's values, in memory that will not change."""
        values = self._values[cell]
        if values is None:
            own = self._current(cell)
            values = self._values[cell] = self._pool.take(own.size, own.dtype)
            values[:] = own
        return values
