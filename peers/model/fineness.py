"""The largest size of a replica's shards, so that a share of the shards per step is accurate.

A model of one shard cannot push a quarter of it. So shards are cut small enough that there are at least as many as the
share's denominator: 4 for a quarter, 5 for 40%. `AUTO` may choose as little as a sixteenth, `LEAST`, and so cuts into
16 shards, but not into small ones: every message takes time even if it is short, so a large number of small messages is
slower, and leaving some out saves little.
"""

from __future__ import annotations

import math
from fractions import Fraction

from gossip.exchange.coding import AUTO, LEAST

__all__ = ["shard_limit"]

#: Bytes of a shard if only a share of the shards is pushed per step: a model of many shards is pushed in even portions.
#: `AUTO` cuts no finer.
_FINE = 1 << 20
#: A share is approximated with this number of shards, or with 1 / share if that is more.
_DENOMINATOR = 16


def shard_limit(total: int, share: float, most: int, compress: str = "none") -> int:
    """Return the most bytes that a shard may have.

    Args:
        total: the bytes of everything that is cut.
        share: the share of the shards that is pushed per step.
        most: the limit for other reasons.
        compress: the codec of parcels, or `AUTO`.
    """
    if share == 1:
        return most if compress != AUTO else min(most, max(_FINE, _portion(total, round(1 / LEAST))))
    least = Fraction(share).limit_denominator(max(_DENOMINATOR, math.ceil(1 / share))).denominator
    return min(most, _FINE, _portion(total, least))


def _portion(total: int, pieces: int) -> int:
    """Return the bytes of the largest of ``pieces`` pieces; each consists of whole numbers of at most 8 bytes."""
    return -(-total // (8 * pieces)) * 8
