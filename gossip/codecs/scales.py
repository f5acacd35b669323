"""Scales of blocks: their largest allowed value, and the checks of scales that arrive."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gossip.codecs.codec import WIDE, Payload, largest
from gossip.codecs.walk import Rows
from gossip.errors import Reason, Rejected

__all__ = ["SCALE_BYTES", "inverse_of", "most", "read_scales"]

#: A scale is a float32.
SCALE_BYTES = WIDE.itemsize
_TINY = np.float32(np.finfo(WIDE).tiny)


def most(dtype: np.dtype[Any], levels: int) -> float:
    """Return the largest float32 scale whose multiple by ``levels`` is still finite in this dtype."""
    limit = largest(dtype)
    scale = np.float32(limit / levels)
    return float(scale) if float(scale) * levels <= limit else float(np.nextafter(scale, np.float32(0)))


def inverse_of(scales: Rows) -> Rows:
    """Return 1 / scale. Scales below the normal numbers become 0, in place, and their inverses are 0 too."""
    scales[scales < _TINY] = 0
    inverse = np.zeros_like(scales)
    np.divide(np.float32(1), scales, out=inverse, where=scales > 0)
    return inverse


def read_scales(head: Payload, top: float) -> Rows:
    """Return the scales at the head of a payload, or raise `Rejected`: each from 0 to ``top``."""
    scales: Rows = head.view(WIDE)
    if scales.size:
        # The minimum and the maximum are NaN if any scale is.
        least, greatest = float(scales.min()), float(scales.max())
        if not (math.isfinite(least) and math.isfinite(greatest)):
            raise Rejected(Reason.NOT_FINITE, "a scale is NaN or infinite")
        if not (least >= 0 and greatest <= top):
            raise Rejected(Reason.MALFORMED, f"scales from {least:g} to {greatest:g}, not from 0 to {top:g}")
    return scales
