"""Stochastic rounding: up with a probability equal to the fraction, otherwise down, so that the mean error is 0.

The formula is ``floor(x + u)`` with u uniform in (0, 1). The draws are those of `topologies.draws`: pure functions of
the caller's keys and of the value's place in the shard, the same on every machine. A draw of 64 bits serves four
values, 16 bits each. So probabilities are exact to 1/65536, and u lies in the middle of its step, so that the remaining
error has no preferred sign.
"""

from __future__ import annotations

import numpy as np

from gossip.codecs.walk import Rows
from topologies.draws import draw_array

__all__ = ["round_up_or_down"]

_PER_DRAW = 4
_STEP = np.float32(2.0**-16)


def round_up_or_down(rows: Rows, keys: tuple[int, ...], start: int) -> None:
    """Round rows of values in place; ``start`` is the place of the first value in the shard, a multiple of 4."""
    flat = rows.reshape(-1)
    first = start // _PER_DRAW
    bits = draw_array(keys, np.arange(first, first - (-flat.size // _PER_DRAW), dtype=np.uint64)).view(np.uint16)
    draws = bits[: flat.size].astype(np.float32)
    draws += np.float32(0.5)
    draws *= _STEP
    flat += draws
    np.floor(flat, out=flat)
