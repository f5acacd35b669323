"""Walks over a shard in stretches that fit into the cache, as float32, in rows of one block.

As in `gossip.values.blocks`, all operations are done on one stretch after the other. So memory is read once, and no
temporary array is as large as the shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gossip.codecs.codec import WIDE, largest
from gossip.errors import SettingsError
from gossip.values.blocks import Values

__all__ = ["Rows", "Stretch", "check_block", "room_for", "rows_of", "saturated", "stretches"]

Rows = npt.NDArray[np.float32]

#: Values per stretch. With the rows, their multiples and the codes, a stretch takes about half a mebibyte.
_STRETCH = 1 << 16


class Stretch(NamedTuple):
    """A part of a shard: whole blocks, except for the last block of the shard."""

    start: int
    stop: int
    #: The range of its blocks, numbered within the shard.
    first: int
    last: int


def check_block(owner: str, block: int) -> int:
    """Return the block size if it is valid."""
    if not 8 <= block <= _STRETCH or block % 8:
        # A multiple of 8, so that a stretch of codes of 1, 2 or 4 bits ends with a byte.
        raise SettingsError(f"{owner}: block must be a multiple of 8 from 8 to {_STRETCH}, not {block}")
    return block


def stretches(count: int, block: int) -> Iterator[Stretch]:
    """Yield the stretches of ``count`` values."""
    step = _STRETCH // block * block
    for start in range(0, count, step):
        stop = min(start + step, count)
        yield Stretch(start, stop, start // block, -(-stop // block))


def saturated(values: Values, room: Rows) -> None:
    """Write values as float32. Values out of its range become its largest number; infinity stays infinity."""
    if values.dtype.itemsize <= WIDE.itemsize:
        room[:] = values
        return
    with np.errstate(over="ignore"):
        room[:] = values
    wrong = np.flatnonzero(np.isinf(room))
    if wrong.size:
        limit = largest(WIDE)
        room[wrong] = np.where(np.isinf(values[wrong]), values[wrong], np.sign(values[wrong]) * limit)


def rows_of(values: Values, block: int, room: Rows) -> Rows:
    """Return a stretch's values in rows of one block: a view if possible, else a copy in ``room``, padded with 0."""
    if values.dtype == WIDE and not values.size % block:
        return values.reshape(-1, block)
    padded = room[: -(-values.size // block) * block]
    saturated(values, padded[: values.size])
    padded[values.size :] = 0
    return padded.reshape(-1, block)


def room_for(count: int, block: int) -> Rows:
    """Return room for the values of one stretch, padded."""
    return np.empty(min(_STRETCH // block, -(-count // block)) * block, WIDE)
