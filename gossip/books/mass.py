"""Shards and their mass.

A replica's parameters are one flat vector for each kind of number, cut into shards. The mass of a shard is the
pair (x, w) of push-sum, and the estimate, which is what the user sees and trains, is z = x / w.

What is stored is z and w, never x. Then giving mass away, (x, w) -> ((1-f) x, (1-f) w), does not touch the
values at all: z stays, only w shrinks. Receiving is an interpolation, z <- z + (z' - z) w' / (w + w'). An optimizer
that steps on z moves x by w times as much, which keeps it stable where w is small. No second copy of the
parameters is needed, and a parcel's payload is simply the values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import xxhash

from gossip.codecs import Codec, Payload, Unencodable
from gossip.errors import SettingsError
from gossip.values.blocks import Values, blend, copy, dot, shift
from gossip.values.layout import Layout
from gossip.values.memory import Owner
from gossip.values.pool import Pool

__all__ = ["Mass", "ShardCopy", "distance"]


class ShardCopy(NamedTuple):
    """A copy of a shard's values, all of them finite, to go with mass that is given away. Nobody changes it."""

    values: Values
    #: The checksum of what is sent; see `gossip.wire.frames`.
    seal: int
    #: What is sent, if it is not the values as they are: these are what it is decoded to.
    payload: Payload | None = None


class Mass:
    """The mass that one peer holds: the values z of all shards and a weight w for each."""

    def __init__(
        self,
        layout: Layout,
        values: Values | Sequence[Values],
        weights: Sequence[float] | None = None,
        owner: Owner | None = None,
    ) -> None:
        parts = [values] if isinstance(values, np.ndarray) else list(values)
        if [(one.shape, one.dtype) for one in parts] != [((part.size,), part.dtype) for part in layout.parts]:
            expected = " and ".join(f"{part.size} values of {part.dtype}" for part in layout.parts)
            found = " and ".join(f"{one.shape} of {one.dtype}" for one in parts)
            raise SettingsError(f"the layout is for {expected}, not {found}")
        self.layout = layout
        #: z, the vectors that the user trains; changed only in `merge`, `move`, `replace` and `keep_the_rest`.
        self.parts = parts
        #: w of each shard; never negative.
        self.weights = [1.0] * layout.shards if weights is None else list(weights)
        first = list(accumulate((part.size for part in layout.parts), initial=0))
        of = [part for part, (_, shards, _) in enumerate(layout.parts) for _ in range(shards)]
        self._views = [
            parts[part][start - first[part] : stop - first[part]]
            for part, (start, stop) in zip(of, layout.bounds, strict=True)
        ]
        #: For snapshots. A model of them is what is in flight at most times, and so what is worth keeping.
        self._pool = Pool(layout.total_bytes, owner)

    @property
    def pool(self) -> Pool:
        """Where memory for what is sent comes from."""
        return self._pool

    @property
    def values(self) -> Values:
        """z, where it is a single vector."""
        (only,) = self.parts
        return only

    def view(self, shard: int) -> Values:
        """Return the shard's values, not a copy."""
        return self._views[shard]

    def snapshot(self, shard: int) -> ShardCopy | None:
        """Return a copy of the shard's values, or None if there is NaN or infinity among them."""
        view = self._views[shard]
        values = self._pool.take(view.size, view.dtype)
        seal, finite = copy(view, values)
        return ShardCopy(values, seal) if finite else None

    def rounded(self, shard: int, codec: Codec, keys: tuple[int, ...]) -> ShardCopy | None:
        """Return the shard's values as a codec carries them, or None if there is NaN or infinity among them."""
        view = self._views[shard]
        try:
            payload = codec.encode(view, keys=keys)
        except Unencodable:
            return None
        return ShardCopy(codec.decode(payload, view.size, view.dtype), xxhash.xxh3_64_intdigest(payload.data), payload)

    def keep_the_rest(self, shard: int, sent: Values, weight: float) -> None:
        """Add what rounding took off: with a weight that was given, ``sent`` left the shard and not its values.

        The mass w z less (weight sent) over the weight w that is left: z moves by weight / w times (z - sent).
        """
        blend(self._views[shard], sent, -weight / self.weights[shard])

    def close(self) -> None:
        """Give up the memory that is kept for snapshots; there will be no more."""
        self._pool.close()

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
            blend(own, values, weight / total)
        self.weights[shard] = total

    def move(self, shard: int, amount: Values, sign: int = 1) -> None:
        """Add to x, or take off it, an amount that is 0 almost everywhere; the weight stays."""
        shift(self._views[shard], amount, sign / self.weights[shard])

    def replace(self, shard: int, values: Values) -> None:
        """Start the shard anew with another peer's z: a fresh weight of 1 is minted."""
        self._views[shard][:] = values
        self.weights[shard] = 1.0


def distance(own: Values, values: Values) -> float:
    """Return how far the values lie from ``own``, relative to its length: 0 where they agree."""
    wide, other = own.astype(np.float64), values.astype(np.float64)
    length = math.sqrt(dot(wide, wide))
    wide -= other
    return math.sqrt(dot(wide, wide)) / (length or 1.0)
