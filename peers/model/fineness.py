"""How large a replica's shards may be, so that a share of them per step is what it says.

A model that is one shard cannot push a quarter of it. Shards are therefore cut so small that there are at least as many
as the share's denominator: 4 for a quarter, 5 for 40%. `AUTO` may choose as little as a sixteenth, `LEAST`, and so cuts
into 16, but nothing that is small: messages take their time however few bytes they have, so that many small ones are
slower, and to leave some out saves little.
"""

from __future__ import annotations

import math
from fractions import Fraction

from gossip.exchange.coding import AUTO, LEAST

__all__ = ["shard_limit"]

#: Bytes of a shard where only a share of them is pushed per step: a model of many is pushed in even portions. `AUTO`
#: cuts no finer.
_FINE = 1 << 20
#: Shares are met with as many shards as this, or with 1 / share if that is more.
_DENOMINATOR = 16


def shard_limit(total: int, share: float, most: int, compress: str = "none") -> int:
    """Return the most bytes that a shard may have.

    Args:
        total: bytes of everything that is cut.
        share: of the shards, that is pushed per step.
        most: the limit for other reasons.
        compress: the codec of parcels, or `AUTO`.
    """
    if share == 1:
        return most if compress != AUTO else min(most, max(_FINE, _portion(total, round(1 / LEAST))))
    least = Fraction(share).limit_denominator(max(_DENOMINATOR, math.ceil(1 / share))).denominator
    return min(most, _FINE, _portion(total, least))


def _portion(total: int, pieces: int) -> int:
    """Return the bytes of the largest of so many pieces: of whole numbers, which have 8 bytes at most."""
    return -(-total // (8 * pieces)) * 8
