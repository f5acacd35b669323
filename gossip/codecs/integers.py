"""Rounding to the nearest of 255 or 15 levels: the integer codecs that can carry mass.

With a scale per block, an outlier costs only the values of its own block precision. This is the idea of the buckets of
QSGD (`gossip.codecs.qsgd`) and of Dettmers et al., "8-bit optimizers via block-wise quantization", 2021
(arXiv:2110.02861). Dettmers, "8-bit approximations for parallelism in deep learning", 2015 (arXiv:1511.04561) showed
that 8 bits are enough between machines, for gradients and activations and with levels that are not evenly spaced.
"""

from __future__ import annotations

from gossip.codecs.blockwise import Blockwise

__all__ = ["Int4", "Int8"]


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
