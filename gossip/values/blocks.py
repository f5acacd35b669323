"""Walks over the values of a shard, block by block.

A shard is larger than the caches next to a core. Whatever is to be done to its values is therefore done to one block
after the other, all of it while the block is in the cache: memory is walked once, and nothing as large as a shard is
allocated on the way.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import xxhash

__all__ = ["BFLOAT16", "BLOCK_BYTES", "Inspection", "Values", "blend", "copy", "inspect", "is_finite", "shift"]

Values = npt.NDArray[Any]

#: numpy has no name for it, so that it is not of kind "f" there.
BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
_WIDE = np.dtype(np.float32)

#: Three blocks, which is what blending needs, are to fit into a second-level cache of 1 MiB. With smaller ones calls
#: cost more than the cache saves.
BLOCK_BYTES = 256 << 10
#: The bits of infinity in half precision, without its sign: every finite number is below, every NaN above.
_INFINITY = {np.dtype(np.float16): 0x7C00, BFLOAT16: 0x7F80}
_NO_SIGN = np.uint16(0x7FFF)


class Inspection(NamedTuple):
    """What a walk finds out about values."""

    #: Their xxh3 checksum.
    seal: int
    #: Whether there is no NaN or infinity.
    finite: bool


class _Scratch(threading.local):
    """Memory for two blocks, for each thread its own: allocated anew each time, it would be paged in each time."""

    def __init__(self) -> None:
        self._memory = np.empty((2, 2 * BLOCK_BYTES), np.uint8)

    def blocks(self, size: int, dtype: np.dtype[Any]) -> tuple[Values, Values]:
        """Return room for so many numbers, twice."""
        one, other = self._memory[:, : size * dtype.itemsize].view(dtype)
        return one, other


_scratch = _Scratch()


def inspect(values: Values) -> Inspection:
    """Seal and check values."""
    seal, finite = xxhash.xxh3_64(), True
    for part in _parts(values):
        block = values[part]
        seal.update(block.view(np.uint8).data)
        finite = finite and is_finite(block)
    return Inspection(seal.intdigest(), finite)


def copy(source: Values, target: Values) -> Inspection:
    """Copy values, and seal and check what was copied."""
    seal, finite = xxhash.xxh3_64(), True
    for part in _parts(source):
        block = target[part]
        block[:] = source[part]
        seal.update(block.view(np.uint8).data)
        finite = finite and is_finite(block)
    return Inspection(seal.intdigest(), finite)


def blend(own: Values, values: Values, fraction: float) -> None:
    """Move ``own`` by a fraction of the way to ``values``, in place."""
    half = own.dtype.itemsize < _WIDE.itemsize
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found when it is to be sent
        for part in _parts(own):
            mine, theirs = own[part], values[part]
            difference, wide = _scratch.blocks(mine.size, _WIDE if half else own.dtype)
            if half:
                # Half precision would round three times, and half the way between neighbours is no number of theirs.
                wide[:] = mine
                difference[:] = theirs
                difference -= wide
                difference *= fraction
                wide += difference
                mine[:] = wide
            else:
                np.subtract(theirs, mine, out=difference)
                difference *= fraction
                mine += difference


def shift(own: Values, amount: Values, factor: float) -> None:
    """Add a multiple of an amount that is 0 almost everywhere, in place."""
    places = np.flatnonzero(amount != 0)  # of a mask it is several times as fast
    wide = own.dtype if own.dtype.itemsize >= _WIDE.itemsize else _WIDE
    with np.errstate(over="ignore"):  # what is not finite is found when it is to be sent
        own[places] = own[places].astype(wide) + amount[places].astype(wide) * wide.type(factor)


def is_finite(values: Values) -> bool:
    """Whether there is no NaN or infinity."""
    infinity = _INFINITY.get(values.dtype)
    if infinity is not None:
        return all(int((values[part].view(np.uint16) & _NO_SIGN).max()) < infinity for part in _parts(values))
    with np.errstate(all="ignore"):
        # Nothing makes a sum finite again after a NaN or infinity; only where it overflows every number is looked at.
        if math.isfinite(np.add.reduce(values)):
            return True
    return bool(np.isfinite(values).all())


def _parts(values: Values) -> Iterator[slice]:
    step = BLOCK_BYTES // values.dtype.itemsize
    return (slice(start, start + step) for start in range(0, values.size, step))
