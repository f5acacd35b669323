"""QSGD: stochastic rounding to a few levels, unbiased.

Alistarh et al. 2017, arXiv:1610.02132. A block is scaled by its largest value, as in the paper's experiments, not by
its norm, as in the paper's theorem: the variance is smaller and all codes are used. Codes have a fixed width. The
paper's Elias code would save a few more bytes where most codes are 0, but takes many times as long.
"""

from __future__ import annotations

from gossip.codecs.blockwise import Blockwise
from gossip.errors import SettingsError

__all__ = ["QSGD"]

#: The largest code, by the width of a code in bits.
_WIDTHS = {2: 1, 4: 7, 8: 127}


class QSGD(Blockwise):
    """Stochastic rounding to ``levels`` levels on either side of 0: unbiased."""

    name = "qsgd"
    stochastic = True

    def __init__(self, *, levels: int = 7, block: int = 512) -> None:
        super().__init__(block)
        if not 1 <= levels <= 127:
            raise SettingsError(f"qsgd: levels, their number on either side of 0, must be from 1 to 127, not {levels}")
        self.levels = levels
        self.bits = next(bits for bits, reach in _WIDTHS.items() if levels <= reach)
