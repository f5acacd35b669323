"""Shards and their mass.

A replica's parameters are one flat vector, cut into shards. The mass of a shard is the pair (x, w) of
push-sum, and the estimate, which is what the user sees and trains, is z = x / w.

What is stored is z and w, never x. Then giving mass away, (x, w) -> ((1-f) x, (1-f) w), does not touch the
values at all: z stays, only w shrinks. Receiving is an interpolation, z <- z + (z' - z) w' / (w + w'). An optimizer
that steps on z moves x by w times as much, which keeps it stable where w is small. No second copy of the
parameters is needed, and a parcel's payload is simply the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gossip.errors import SettingsError

__all__ = ["SHARD_BYTES", "Layout", "Mass", "Values", "is_finite"]

Values = npt.NDArray[Any]

#: 4 MiB. A parcel is a shard: smaller ones cost more messages per model, larger ones hold a link longer and page-fault
#: more; 1 to 4 MiB is the range in which neither matters much.
SHARD_BYTES = 4 << 20


@dataclass(frozen=True)
class Layout:
    """How a flat vector is cut into shards as even as possible."""

    size: int
    shards: int
    dtype: np.dtype[Any]
    #: Where each shard starts and stops in the flat vector.
    bounds: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= self.size:
            raise SettingsError(f"{self.size} parameters can form 1 to {self.size} shards, not {self.shards}")
        if self.dtype.kind != "f":
            raise SettingsError(f"mass is made of floating-point numbers, not {self.dtype}")
        cuts = [self.size * shard // self.shards for shard in range(self.shards + 1)]
        object.__setattr__(self, "bounds", tuple(pairwise(cuts)))

    @classmethod
    def cut(cls, size: int, shard_bytes: int = SHARD_BYTES, dtype: npt.DTypeLike = np.float32) -> Layout:
        """Lay out ``size`` elements in shards of at most ``shard_bytes``."""
        kind = np.dtype(dtype)
        if size < 1:
            raise SettingsError("there is nothing to share: the model has no floating-point parameters")
        if shard_bytes < kind.itemsize:
            raise SettingsError(f"a shard holds at least one element of {kind.itemsize} bytes, not {shard_bytes}")
        return cls(size, -(-size // (shard_bytes // kind.itemsize)), kind)

    def nbytes(self, shard: int) -> int:
        """Return the size of the shard's values."""
        start, stop = self.bounds[shard]
        return (stop - start) * self.dtype.itemsize


class Mass:
    """The mass that one peer holds: the values z of all shards and a weight w for each."""

    def __init__(self, layout: Layout, values: Values, weights: list[float] | None = None) -> None:
        if values.shape != (layout.size,) or values.dtype != layout.dtype:
            raise SettingsError(
                f"the layout is for {layout.size} values of {layout.dtype}, not {values.shape} of {values.dtype}"
            )
        self.layout = layout
        #: z, the vector that the user trains; this class changes it only in `merge`.
        self.values = values
        #: w of each shard; never negative.
        self.weights = [1.0] * layout.shards if weights is None else list(weights)
        self._views = [values[start:stop] for start, stop in layout.bounds]

    def view(self, shard: int) -> Values:
        """Return the shard's values, not a copy."""
        return self._views[shard]

    def snapshot(self, shard: int) -> Values:
        """Return a copy of the shard's values, to go with mass that is given away."""
        values: Values = self._views[shard].copy()
        return values

    def give(self, shard: int, weight: float) -> None:
        """Take ``weight`` off the shard; the values stay. Somebody else must book just as much."""
        self.weights[shard] -= weight

    def merge(self, shard: int, values: Values, weight: float) -> None:
        """Add mass to the shard."""
        total = self.weights[shard] + weight
        own = self._views[shard]
        if total == weight:
            own[:] = values
        else:
            difference = values - own
            difference *= weight / total
            own += difference
        self.weights[shard] = total


def is_finite(values: Values) -> bool:
    """Whether there is no NaN or infinity: a dot product tells in one fast pass, save where it overflows."""
    with np.errstate(all="ignore"):
        if math.isfinite(np.dot(values, values)):
            return True
    return bool(np.isfinite(values).all())
