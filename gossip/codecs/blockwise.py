"""Values as small integers, with a scale for each block.

    payload    a scale for each block: float32, little-endian; the last block may be shorter than the others
               then the codes, as in `gossip.codecs.bits`

The scale of a block is its largest value divided by the largest code, so that value = code * scale. The rounding error
of a value is at most half a scale, or one scale where rounding is stochastic.

At the ends of the range: a block whose scale would not be a normal float32 (all values below 1e-38 times the largest
code) is sent as zeros. A scale is never so large that its largest multiple overflows. Values of float64 beyond the
range of float32 are sent as the largest float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gossip.codecs.bits import Codes, pack, packed_size, unpack
from gossip.codecs.codec import WIDE, Codec, Given, Payload, Unencodable, need_length
from gossip.codecs.rounding import round_up_or_down
from gossip.codecs.scales import SCALE_BYTES, inverse_of, most, read_scales
from gossip.codecs.walk import Rows, check_block, room_for, rows_of, stretches
from gossip.values.blocks import Values

__all__ = ["Blockwise"]


class Blockwise(Codec):
    """Codes of 8, 4 or 2 bits and scales."""

    #: The largest value in units of the scale, which is the largest code unless `_round` and `_worth` say otherwise.
    levels: int
    #: The width of a code: 8, 4 or 2.
    bits: int

    def __init__(self, block: int) -> None:
        self.block = check_block(self.name, block)

    def size(self, count: int, dtype: npt.DTypeLike = np.float32) -> int:  # noqa: ARG002
        """Return the size in bytes of a payload of ``count`` values."""
        return SCALE_BYTES * -(-count // self.block) + packed_size(count, self.bits)

    def _encode(self, given: Given) -> Payload:
        values, block = given.values, self.block
        out = np.empty(self.size(values.size), np.uint8)
        head = SCALE_BYTES * -(-values.size // block)
        scales, packed = out[:head].view(WIDE), out[head:]
        top = most(values.dtype, self.levels)
        room, work = room_for(values.size, block), room_for(values.size, block)
        codes = np.empty(work.size, np.int8)
        for start, stop, first, last in stretches(values.size, block):
            rows = rows_of(values[start:stop], block, room)
            scaled = work[: rows.size].reshape(rows.shape)
            np.abs(rows, out=scaled)
            peaks = scaled.max(axis=1)
            if not np.isfinite(peaks).all():
                raise Unencodable("NaN or infinity among the values")
            peaks *= np.float32(1 / self.levels)
            np.minimum(peaks, top, out=peaks)
            inverse = inverse_of(peaks)
            np.multiply(rows, inverse[:, None], out=scaled)
            self._round(scaled, peaks, given.keys, start)
            scales[first:last] = peaks
            flat = codes[: scaled.size]
            np.copyto(flat, scaled.reshape(-1), casting="unsafe")
            begin = packed_size(start, self.bits)
            pack(flat[: stop - start], self.bits, packed[begin : packed_size(stop, self.bits)])
        return out

    def _round(self, scaled: Rows, scales: Rows, keys: tuple[int, ...], start: int) -> None:  # noqa: ARG002
        """Round the values, which are in units of their scales, to integers, in place."""
        if self.stochastic:
            # A value may exceed the largest code by its last bit, and a draw could round that up to the next code.
            np.clip(scaled, -self.levels, self.levels, out=scaled)
            round_up_or_down(scaled, keys, start)
        else:
            np.rint(scaled, out=scaled)

    def _worth(self, codes: Codes, out: Rows) -> None:
        """Write what codes are worth, in units of their scales."""
        out[:] = codes

    def _decode(self, payload: Payload, count: int, dtype: np.dtype[Any]) -> Values:
        need_length(payload, self.size(count))
        block, head = self.block, SCALE_BYTES * -(-count // self.block)
        scales = read_scales(payload[:head], most(dtype, self.levels))
        packed = payload[head:]
        out = np.empty(count, dtype)
        work = room_for(count, block)
        for start, stop, first, last in stretches(count, block):
            part = packed[packed_size(start, self.bits) : packed_size(stop, self.bits)]
            scaled = work[: (last - first) * block]
            self._worth(unpack(part, self.bits, stop - start, self.levels), scaled[: stop - start])
            scaled[stop - start :] = 0
            rows = scaled.reshape(-1, block)
            if dtype == WIDE and stop - start == scaled.size:
                np.multiply(rows, scales[first:last, None], out=out[start:stop].reshape(rows.shape))
            else:
                rows *= scales[first:last, None]
                out[start:stop] = scaled[: stop - start]
        return out
