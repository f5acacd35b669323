"""QSGD: stochastic rounding to a few levels, unbiased.

Alistarh et al. 2017, arXiv:1610.02132. A block is scaled by its largest value, as in the paper's experiments, rather
than by its length, as in its theorem: the variance is smaller and the codes all get used. Codes have a fixed width; the
paper's Elias code would save a little more where most codes are 0, at many times the time.
"""

from __future__ import annotations

from gossip.codecs.blockwise import Blockwise
from gossip.errors import SettingsError

__all__ = ["QSGD"]

#: Codes of so many bits reach so far.
_WIDTHS = {2: 1, 4: 7, 8: 127}


class QSGD(Blockwise):
    """Stochastic rounding to ``levels`` levels on either side of 0: unbiased."""

    name = "qsgd"
    stochastic = True

    def __init__(self, *, levels: int = 7, block: int = 512) -> None:
        super().__init__(block)
        if not 1 <= levels <= 127:
            raise SettingsError(f"qsgd: levels is how many there are on either side of 0, 1 to 127, not {levels}")
        self.levels = levels
        self.bits = next(bits for bits, reach in _WIDTHS.items() if levels <= reach)
