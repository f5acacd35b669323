"""TernGrad: each value as -1, 0 or 1 times a scale, drawn so that it is right on average.

Wen et al. 2017, arXiv:1705.07878. A value v becomes sign(v) times the block's largest with the chance |v| / largest.
One outlier makes all others of its block noisier, so the paper clips values at 2.5 standard deviations: ``clip=2.5``,
which is no longer unbiased: what is clipped is lost, as in the paper, unless the sender keeps it. 0, the default, does
not clip. The paper has one scale for each layer, the same at all workers; here it is one for each block and sender.
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
            raise SettingsError(f"terngrad: clip is a number of standard deviations, or 0 for never, not {clip}")
        self.clip = clip

    def _round(self, scaled: Rows, scales: Rows, keys: tuple[int, ...], start: int) -> None:
        if self.clip:
            # In units of the scale no square overflows. About 0, since gradients have no mean worth the name.
            deviation = np.sqrt(np.einsum("ij,ij->i", scaled, scaled) / np.float32(self.block))
            smaller = np.minimum(deviation * np.float32(self.clip), np.float32(1))
            smaller[smaller == 0] = 1
            scaled /= smaller[:, None]
            scales *= smaller
        super()._round(scaled, scales, keys, start)
