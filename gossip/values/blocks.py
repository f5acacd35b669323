"""Walks over the values of a shard, block by block.

A shard is larger than the caches next to a core. So all operations on its values are done on one block after the other,
while the block is in the cache. Memory is read once, and no temporary array is as large as a shard.
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

__all__ = ["BFLOAT16", "BLOCK_BYTES", "Inspection", "Values", "blend", "copy", "dot", "inspect", "is_finite", "shift"]

Values = npt.NDArray[Any]

#: numpy does not know this dtype, so its kind is not "f".
BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
_WIDE = np.dtype(np.float32)

#: Blending needs three blocks, which must fit into a second-level cache of 1 MiB. With smaller blocks the calls cost
#: more than the cache saves.
BLOCK_BYTES = 256 << 10
#: The bits of infinity in half precision, without its sign: every finite number is below, every NaN above.
_INFINITY = {np.dtype(np.float16): 0x7C00, BFLOAT16: 0x7F80}
_NO_SIGN = np.uint16(0x7FFF)


class Inspection(NamedTuple):
    """The results of a walk over values."""

    #: Their xxh3 checksum.
    seal: int
    #: Whether there is no NaN or infinity.
    finite: bool


class _Scratch(threading.local):
    """Memory for two blocks, one per thread. It is kept, because fresh memory has to be paged in every time."""

    def __init__(self) -> None:
        self._memory = np.empty((2, 2 * BLOCK_BYTES), np.uint8)

    def blocks(self, size: int, dtype: np.dtype[Any]) -> tuple[Values, Values]:
        """Return two arrays of ``size`` numbers."""
        one, other = self._memory[:, : size * dtype.itemsize].view(dtype)
        return one, other


_scratch = _Scratch()


def dot(one: Values, other: Values) -> float:
    """Return the sum of the products, in double precision: the same on every machine.

    `numpy.dot` is BLAS's, whose order of summing depends on the processor and on settings of BLAS.
    """
    return float(np.add.reduce(np.multiply(one, other, dtype=np.float64)))


def inspect(values: Values) -> Inspection:
    """Compute the checksum of values, and check that they are finite."""
    seal, finite = xxhash.xxh3_64(), True
    for part in _parts(values):
        block = values[part]
        seal.update(block.view(np.uint8).data)
        finite = finite and is_finite(block)
    return Inspection(seal.intdigest(), finite)


def copy(source: Values, target: Values) -> Inspection:
    """Copy values, compute the checksum of the copy, and check that it is finite."""
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
    with np.errstate(over="ignore", invalid="ignore"):  # values are checked for NaN and infinity before they are sent
        for part in _parts(own):
            mine, theirs = own[part], values[part]
            difference, wide = _scratch.blocks(mine.size, _WIDE if half else own.dtype)
            if half:
                # In half precision the result would be rounded three times, and no number lies halfway between two
                # neighbouring ones.
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
    places = np.flatnonzero(amount != 0)  # several times as fast on a mask as on the values
    wide = own.dtype if own.dtype.itemsize >= _WIDE.itemsize else _WIDE
    with np.errstate(over="ignore"):  # values are checked for NaN and infinity before they are sent
        own[places] = own[places].astype(wide) + amount[places].astype(wide) * wide.type(factor)


def is_finite(values: Values) -> bool:
    """Whether there is no NaN or infinity."""
    infinity = _INFINITY.get(values.dtype)
    if infinity is not None:
        return all(int((values[part].view(np.uint16) & _NO_SIGN).max()) < infinity for part in _parts(values))
    with np.errstate(all="ignore"):
        # A sum with NaN or infinity is never finite. If the sum is not finite, it may have overflowed: check each
        # number.
        if math.isfinite(np.add.reduce(values)):
            return True
    return bool(np.isfinite(values).all())


def _parts(values: Values) -> Iterator[slice]:
    step = BLOCK_BYTES // values.dtype.itemsize
    return (slice(start, start + step) for start in range(0, values.size, step))
