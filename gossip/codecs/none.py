"""No compression: the values as they are in memory.

payload    count values, little-endian
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gossip.codecs.codec import Codec, Given, Payload, Unencodable, need_length
from gossip.errors import Reason, Rejected
from gossip.values.blocks import Values, is_finite

__all__ = ["Uncompressed"]


class Uncompressed(Codec):
    """The values as they are."""

    name = "none"
    carries_mass = True

    def size(self, count: int, dtype: npt.DTypeLike = np.float32) -> int:
        """Return the size in bytes of a payload of ``count`` values."""
        return count * np.dtype(dtype).itemsize

    def _encode(self, given: Given) -> Payload:
        if given.values.size and not is_finite(given.values):
            raise Unencodable("NaN or infinity among the values")
        return given.values.view(np.uint8)

    def _decode(self, payload: Payload, count: int, dtype: np.dtype[Any]) -> Values:
        need_length(payload, self.size(count, dtype))
        values: Values = payload.view(dtype)
        if count and not is_finite(values):
            raise Rejected(Reason.NOT_FINITE, "NaN or infinity among the values")
        return values
