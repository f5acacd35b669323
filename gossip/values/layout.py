"""How a replica's numbers are cut into shards.

A replica's parameters are one flat vector for each kind of number, cut into shards. Peers of one run have the same
layout: a parcel or a piece names a shard, and its size and type follow from that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gossip.errors import SettingsError
from gossip.values.blocks import BFLOAT16

__all__ = ["SHARD_BYTES", "Layout", "Part"]

#: 4 MiB. A parcel is a shard: smaller ones cost more messages per model, larger ones hold a link longer and page-fault
#: more; 1 to 4 MiB is the range in which neither matters much.
SHARD_BYTES = 4 << 20


class Part(NamedTuple):
    """A vector of numbers of one kind, cut into shards as even as possible."""

    size: int
    shards: int
    dtype: np.dtype[Any]

    @classmethod
    def cut(cls, size: int, shard_bytes: int = SHARD_BYTES, dtype: npt.DTypeLike = np.float32) -> Part:
        """Cut ``size`` elements into shards of at most ``shard_bytes``."""
        kind = np.dtype(dtype)
        if size < 1:
            raise SettingsError(f"size={size}: there is nothing to share; the model has no floating-point parameters")
        if shard_bytes < kind.itemsize:
            raise SettingsError(
                f"shard_bytes={shard_bytes}: a shard must hold at least one element of {kind.itemsize} bytes"
            )
        return cls(size, -(-size // (shard_bytes // kind.itemsize)), kind)


@dataclass(frozen=True)
class Layout:
    """How a replica's numbers are cut into shards: one part per kind of number, one after the other."""

    parts: tuple[Part, ...]
    #: Where each shard starts and stops, counted through all parts.
    bounds: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    #: What each shard is made of.
    dtypes: tuple[np.dtype[Any], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bounds: list[tuple[int, int]] = []
        start = 0
        for size, shards, dtype in self.parts:
            if not 1 <= shards <= size:
                raise SettingsError(f"{size} parameters can form 1 to {size} shards, not {shards}")
            if dtype.kind != "f" and dtype != BFLOAT16:
                raise SettingsError(f"dtype={dtype}: mass is made of floating-point numbers")
            bounds += pairwise([start + size * shard // shards for shard in range(shards + 1)])
            start += size
        object.__setattr__(self, "bounds", tuple(bounds))
        object.__setattr__(self, "dtypes", tuple(part.dtype for part in self.parts for _ in range(part.shards)))

    @classmethod
    def uniform(cls, size: int, shards: int, dtype: npt.DTypeLike) -> Layout:
        """Lay out one vector in this number of shards."""
        return cls((Part(size, shards, np.dtype(dtype)),))

    @classmethod
    def cut(cls, size: int, shard_bytes: int = SHARD_BYTES, dtype: npt.DTypeLike = np.float32) -> Layout:
        """Lay out one vector of ``size`` elements in shards of at most ``shard_bytes``."""
        return cls((Part.cut(size, shard_bytes, dtype),))

    @property
    def size(self) -> int:
        """The number of elements."""
        return sum(part.size for part in self.parts)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.bounds)

    @property
    def total_bytes(self) -> int:
        """The size of all values."""
        return sum(part.size * part.dtype.itemsize for part in self.parts)

    def nbytes(self, shard: int) -> int:
        """Return the size of the shard's values."""
        start, stop = self.bounds[shard]
        return (stop - start) * self.dtypes[shard].itemsize
