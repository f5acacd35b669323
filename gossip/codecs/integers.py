"""Rounding to the nearest of 255, 15 or 4 levels. 255 and 15 levels can carry mass, 4 only differences.

With a scale per block, an outlier costs only the values of its own block precision. This is the idea of the buckets of
QSGD (`gossip.codecs.qsgd`) and of Dettmers et al., "8-bit optimizers via block-wise quantization", 2021
(arXiv:2110.02861). Dettmers, "8-bit approximations for parallelism in deep learning", 2015 (arXiv:1511.04561) showed
that 8 bits are enough between machines, for gradients and activations and with levels that are not evenly spaced.

Two bits have no level at 0. With a 0, one of the four codes would be unused, or one side would have a level more than
the other. The error of a value is at most a third of its block's largest. So with error feedback, e <- (v + e) - C(v +
e), a residual is at most (|v| + |e|) / 3 in the largest of each block, hence never above half of the largest v.
"""

from __future__ import annotations

import numpy as np

from gossip.codecs.bits import Codes
from gossip.codecs.blockwise import Blockwise
from gossip.codecs.walk import Rows

__all__ = ["Int2", "Int4", "Int8"]


class Int8(Blockwise):
    """Values as multiples of a block's scale, from -127 to 127."""

    name = "int8"
    carries_mass = True
    levels = 127
    bits = 8

    def __init__(self, *, block: int = 256) -> None:
        super().__init__(block)


class Int4(Blockwise):
    """Values as multiples of a block's scale, from -7 to 7, two to a byte."""

    name = "int4"
    carries_mass = True
    levels = 7
    bits = 4

    def __init__(self, *, block: int = 64) -> None:
        super().__init__(block)


class Int2(Blockwise):
    """Values as -1, -1/3, 1/3 or 1 times their block's largest, four to a byte: for differences."""

    name = "int2"
    levels = 3
    bits = 2

    def __init__(self, *, block: int = 64) -> None:
        super().__init__(block)

    def _round(self, scaled: Rows, scales: Rows, keys: tuple[int, ...], start: int) -> None:  # noqa: ARG002
        """Round to codes from -2 to 1, of which c stands for 2 c + 1: -3, -1, 1 or 3 times a third of the largest."""
        scaled *= np.float32(0.5)
        np.floor(scaled, out=scaled)
        np.clip(scaled, -2, 1, out=scaled)

    def _worth(self, codes: Codes, out: Rows) -> None:
        out[:] = codes
        out *= 2
        out += 1
