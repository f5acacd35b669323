"""TernGrad: each value as -1, 0 or 1 times a scale, drawn so that the mean error is 0.

Wen et al. 2017, arXiv:1705.07878. A value v becomes sign(v) times the largest of its block with the probability
|v| / largest, otherwise 0. One outlier makes all others of its block noisier, so the paper clips values at 2.5 standard
deviations: ``clip=2.5``. Clipping is biased: the clipped part is lost, as in the paper, unless the sender keeps it. The
default, 0, does not clip. The paper has one scale per layer, the same at all workers; here each block of each sender
has its own.
"""

from __future__ import annotations

import math

import numpy as np

from gossip.codecs.blockwise import Blockwise
from gossip.codecs.walk import Rows
from gossip.errors import SettingsError

__all__ = ["TernGrad"]


class TernGrad(Blockwise):
    """Each value as -1, 0 or 1 times its block's scale: unbiased, 2 bits."""

    name = "terngrad"
    stochastic = True
    levels = 1
    bits = 2

    def __init__(self, *, block: int = 256, clip: float = 0.0) -> None:
        super().__init__(block)
        if not (math.isfinite(clip) and clip >= 0):
            raise SettingsError(f"terngrad: clip must be a number of standard deviations, or 0 for never, not {clip}")
        self.clip = clip

    def _round(self, scaled: Rows, scales: Rows, keys: tuple[int, ...], start: int) -> None:
        if self.clip:
            # In units of the scale no square overflows. The deviation is taken from 0: the mean of gradients is small.
            deviation = np.sqrt(np.einsum("ij,ij->i", scaled, scaled) / np.float32(self.block))
            smaller = np.minimum(deviation * np.float32(self.clip), np.float32(1))
            smaller[smaller == 0] = 1
            scaled /= smaller[:, None]
            scales *= smaller
        super()._round(scaled, scales, keys, start)
