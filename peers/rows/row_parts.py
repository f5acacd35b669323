"""Which process holds which rows, and which rows of others it needs. Pure arithmetic, without torch.

*Bounds* are the P + 1 ascending numbers of rows at which the parts of P processes begin and end: process j holds the
rows from ``bounds[j]`` to below ``bounds[j + 1]``. Every process knows all bounds, so all of them compute the same plan
and refuse the same cases, and none is left waiting for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gossip.errors import GossipError, SettingsError

__all__ = ["Bounds", "RowsError", "Window", "even_bounds", "overlaps", "row_range"]

#: Where the parts of all processes begin, and where the last one ends.
Bounds = tuple[int, ...]


class RowsError(GossipError, RuntimeError):
    """Something that a model does cannot be done on a part of the rows."""


def row_range(height: int, rows: int, row: int) -> tuple[int, int]:
    """Return the first image row that a process holds, and the first that it does not hold any more.

    Parts differ by at most one row; the first ones are the larger ones.

    Args:
        height: of the whole image.
        rows: the number of processes that share it.
        row: which of them, from 0.
    """
    if not (rows >= 1 and 0 <= row < rows):
        raise SettingsError(f"row={row} of rows={rows}: rows must be at least 1, and row from 0 to below rows")
    if height < rows:
        raise SettingsError(
            f"height={height} for rows={rows}: every process needs at least one image row; use fewer processes"
        )
    share, more = divmod(height, rows)
    first = row * share + min(row, more)
    return first, first + share + (row < more)


def even_bounds(height: int, rows: int) -> Bounds:
    """Return the bounds of an image that is cut by `row_range`."""
    return (0, *(row_range(height, rows, row)[1] for row in range(rows)))


def overlaps(bounds: Bounds, needed: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield what moves between processes: sender, receiver, and the first and the last but one of the rows.

    Args:
        bounds: of what the processes hold.
        needed: the rows that each process needs; rows outside of the image are nobody's, and do not move.
    """
    for receiver, (low, high) in enumerate(needed):
        for sender in range(len(bounds) - 1):
            first, last = max(low, bounds[sender]), min(high, bounds[sender + 1])
            if sender != receiver and first < last:
                yield sender, receiver, first, last


@dataclass(frozen=True)
class Window:
    """The window of a convolution or a pooling, along the rows."""

    kernel: int
    stride: int = 1
    #: Rows of padding above the image, and below it.
    above: int = 0
    below: int = 0
    dilation: int = 1
    #: Whether the last window may reach beyond the padding, as poolings have it with ceil_mode.
    ceil: bool = False

    @property
    def extent(self) -> int:
        """The rows from the first to the last that a window touches."""
        return self.dilation * (self.kernel - 1) + 1

    def out_height(self, height: int) -> int:
        """Return the number of output rows of the whole image, by torch's formula."""
        room = height + self.above + self.below - self.extent
        count = (room + (self.stride - 1 if self.ceil else 0)) // self.stride + 1
        if self.ceil and (count - 1) * self.stride >= height + self.above:
            count -= 1  # the last window would begin below the image
        return count

    def out_bounds(self, bounds: Bounds) -> Bounds:
        """Return who computes which output rows: the process that holds the middle of the window.

        Halos are then half a window on both sides, whatever the stride. Where that leaves a process without output,
        rows are dealt out evenly instead, and come from further away.
        """
        height, rows = self.out_height(bounds[-1]), len(bounds) - 1
        middle = (self.extent - 1) // 2 - self.above
        inner = [min(max(-((middle - bound) // self.stride), 0), height) for bound in bounds[1:-1]]
        found = (0, *inner, height)
        if all(low < high for low, high in pairwise(found)):
            return found
        if height < rows:
            raise RowsError(
                f"its output has {height} rows for {rows} processes, and every process needs at least one: gather the "
                "rows before it, with peers.rows.GatherRows() or gather_rows(x), or use fewer processes"
            )
        return even_bounds(height, rows)

    def needed(self, out: Bounds) -> list[tuple[int, int]]:
        """Return the input rows that each process needs for its output rows; below 0 and above the height: padding."""
        return [
            (low * self.stride - self.above, (high - 1) * self.stride - self.above + self.extent)
            for low, high in pairwise(out)
        ]
