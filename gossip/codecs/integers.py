"""Rounding to the nearest of 255, 15 or 4 levels. 255 and 15 levels can carry mass, 4 only differences.

With a scale per block, an outlier costs only the values of its own block precision. This is the idea of the buckets of
QSGD (`gossip.codecs.qsgd`) and of Dettmers et al., "8-bit optimizers via block-wise quantization", 2021
(arXiv:2110.02861). Dettmers, "8-bit approximations for parallelism in deep learning", 2015 (arXiv:1511.04561) showed
that 8 bits are enough between machines, for gradients and activations and with levels that are not evenly spaced.

Two bits have no level at 0. With a 0, one of the four codes would be unused, or one side would have a level more than
the other. And a scale by the block's largest value would waste them: of 64 normal values the largest is about 2.5
standard deviations r, so the levels would be 0.8 r and 2.5 r, and most values are smaller than the first one. The error
would be 0.24 of the values' squares, and more than all of them for a block with few large values. So a value counts as
large from r on, the root mean square of its block, and the scale is that with the least squared error for the codes c:

    s = <v, c> / <c, c>        |v - s c|^2 = |v|^2 - <v, c>^2 / |c|^2

For normal values this is within 2% of the best four levels there are (Max, "Quantizing for minimum distortion", 1960):
0.12 of the squares. Each c has the sign of its v, so <v, c> is positive, and the error is smaller than the values,
whatever they are. That is what error feedback needs, e <- (v + e) - C(v + e), for residuals to stay bounded
(Karimireddy et al., 2019, arXiv:1901.09847).
"""

from __future__ import annotations

import numpy as np

from gossip.codecs.bits import Codes
from gossip.codecs.blockwise import Blockwise
from gossip.codecs.scales import inverse_of
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
    """Values as -3, -1, 1 or 3 times the scale of their block, four to a byte: for differences."""

    name = "int2"
    levels = 3
    bits = 2

    def __init__(self, *, block: int = 64) -> None:
        super().__init__(block)

    def _round(self, scaled: Rows, scales: Rows, keys: tuple[int, ...], start: int, stop: int) -> None:  # noqa: ARG002
        """Round to codes from -2 to 1, of which c stands for 2 c + 1, and fit the scales to them."""
        counts = np.full(len(scaled), self.block, np.float32)
        counts[-1] = stop - start - self.block * (len(scaled) - 1)
        large = np.sqrt(np.einsum("ij,ij->i", scaled, scaled) / counts)
        codes = scaled * inverse_of(large)[:, None]
        np.floor(codes, out=codes)
        np.clip(codes, -2, 1, out=codes)
        worth = 2 * codes + 1
        # What fills up the last block counts for nothing.
        filled = self.block - counts
        scales *= np.einsum("ij,ij->i", scaled, worth) / (np.einsum("ij,ij->i", worth, worth) - filled)
        scaled[:] = codes

    def _worth(self, codes: Codes, out: Rows) -> None:
        out[:] = codes
        out *= 2
        out += 1
