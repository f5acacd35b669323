"""Rounding to the nearest of 255 or 15 levels: what mass is sent in.

A scale per block keeps an outlier from costing the others their bits: the buckets of QSGD (`gossip.codecs.qsgd`), and
Dettmers et al., "8-bit optimizers via block-wise quantization", 2021 (arXiv:2110.02861). That 8 bits will do between
machines, there for gradients and activations and with levels that are not evenly spaced: Dettmers, "8-bit
approximations for parallelism in deep learning", 2015 (arXiv:1511.04561).
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
