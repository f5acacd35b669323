"""Half precision: each value is rounded to the nearest, ties to even.

    payload    count values of 2 bytes, little-endian

``bf16`` has the range of float32 and 8 significant bits; ``fp16`` has 11, but ends at 65504 and loses bits below 6e-5.
A value out of range becomes the largest number of the format. The sender keeps the rest, as it keeps all rounding
errors.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gossip.codecs.codec import Codec, Given, Payload, Unencodable, largest, need_length
from gossip.codecs.walk import room_for, saturated, stretches
from gossip.errors import Reason, Rejected
from gossip.values.blocks import BFLOAT16, Values, is_finite

__all__ = ["BF16", "FP16"]

_BYTES = 2
#: Half precision has no blocks; any size of a stretch works.
_BLOCK = 1 << 10


class _Half(Codec):
    """Values of 2 bytes."""

    carries_mass = True
    _kind: ClassVar[np.dtype[Any]]

    def size(self, count: int, dtype: npt.DTypeLike = np.float32) -> int:  # noqa: ARG002
        """Return the size in bytes of a payload of ``count`` values."""
        return _BYTES * count

    def _encode(self, given: Given) -> Payload:
        values, limit = given.values, _reach(self._kind, given.values.dtype)
        if values.dtype == self._kind:
            if values.size and not is_finite(values):
                raise Unencodable("NaN or infinity among the values")
            return values.view(np.uint8)
        out = np.empty(values.size, self._kind)
        room = room_for(values.size, _BLOCK)
        for start, stop, _, _ in stretches(values.size, _BLOCK):
            wide = room[: stop - start]
            saturated(values[start:stop], wide)
            if not is_finite(wide):
                raise Unencodable("NaN or infinity among the values")
            np.clip(wide, -limit, limit, out=wide)
            out[start:stop] = wide
        return out.view(np.uint8)

    def _decode(self, payload: Payload, count: int, dtype: np.dtype[Any]) -> Values:
        need_length(payload, self.size(count))
        with np.errstate(over="ignore", invalid="ignore"):
            values = payload.view(self._kind).astype(dtype)
        # Checked in the caller's dtype: a bfloat16 may be too large for a float16.
        if count and not is_finite(values):
            raise Rejected(Reason.NOT_FINITE, "NaN or infinity among the values")
        return values


class BF16(_Half):
    """Values as bfloat16: float32's range, 8 significant bits."""

    name = "bf16"
    _kind = BFLOAT16


class FP16(_Half):
    """Values as float16: 11 significant bits, at most 65504."""

    name = "fp16"
    _kind = np.dtype(np.float16)


def _reach(kind: np.dtype[Any], dtype: np.dtype[Any]) -> float:
    """Return the largest number of ``kind`` that ``dtype`` can hold."""
    limit = min(largest(kind), largest(dtype))
    nearest = np.array(limit).astype(kind)
    if float(nearest) > limit:  # as 65504, the largest float16, is 65536 as a bfloat16
        nearest = (nearest.view(np.uint16) - np.uint16(1)).view(kind)
    return float(nearest)
