"""The sign of each value, and the mean absolute value of each block.

    payload    a scale for each block: float32, little-endian; the last block may be shorter than the others
               then a bit for each value, 1 if it is negative; the first in the lowest bit,
               bits after the last value are 0

Seide et al. 2014 ("1-bit stochastic gradient descent") showed that one bit is enough if the error is carried over. The
scale with the smallest error is the mean of the absolute values (Karimireddy et al. 2019, arXiv:1901.09847). Without
error feedback (`gossip.codecs.feedback`) training does not converge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gossip.codecs.codec import WIDE, Codec, Given, Payload, Unencodable, need_length
from gossip.codecs.scales import SCALE_BYTES, most, read_scales
from gossip.codecs.walk import Rows, check_block, room_for, rows_of, stretches
from gossip.errors import Reason, Rejected
from gossip.values.blocks import Values, is_finite

__all__ = ["Sign"]


class Sign(Codec):
    """One bit for each value, and the mean absolute value of its block."""

    name = "sign"

    def __init__(self, *, block: int = 256) -> None:
        self.block = check_block(self.name, block)

    def size(self, count: int, dtype: npt.DTypeLike = np.float32) -> int:  # noqa: ARG002
        """Return the size in bytes of a payload of ``count`` values."""
        return SCALE_BYTES * -(-count // self.block) + -(-count // 8)

    def _encode(self, given: Given) -> Payload:
        values, block = given.values, self.block
        out = np.empty(self.size(values.size), np.uint8)
        head = SCALE_BYTES * -(-values.size // block)
        scales, bits = out[:head].view(WIDE), out[head:]
        top = most(values.dtype, 1)
        room, work = room_for(values.size, block), room_for(values.size, block)
        for start, stop, first, last in stretches(values.size, block):
            rows = rows_of(values[start:stop], block, room)
            sizes = work[: rows.size].reshape(rows.shape)
            np.abs(rows, out=sizes)
            means = _sums(sizes)
            means /= block
            means[-1] *= block / (
                stop - start - block * (last - first - 1)
            )  # the padding of the last block does not count
            scales[first:last] = np.minimum(means, top)
            negative = np.signbit(rows).reshape(-1)[: stop - start]
            bits[start // 8 : -(-stop // 8)] = np.packbits(negative, bitorder="little")
        return out

    def _decode(self, payload: Payload, count: int, dtype: np.dtype[Any]) -> Values:
        need_length(payload, self.size(count))
        block, head = self.block, SCALE_BYTES * -(-count // self.block)
        scales, bits = read_scales(payload[:head], most(dtype, 1)), payload[head:]
        if count % 8 and int(bits[-1]) >> count % 8:
            raise Rejected(Reason.MALFORMED, f"bits are set after the last of {count} values")
        out = np.empty(count, dtype)
        work = room_for(count, block)
        for start, stop, first, last in stretches(count, block):
            scaled = work[: (last - first) * block]
            signs = scaled[: stop - start]
            signs[:] = np.unpackbits(bits[start // 8 : -(-stop // 8)], count=stop - start, bitorder="little")
            signs *= -2
            signs += 1
            scaled[stop - start :] = 0
            rows = scaled.reshape(-1, block)
            rows *= scales[first:last, None]
            out[start:stop] = scaled[: stop - start]
        return out


def _sums(sizes: Rows) -> npt.NDArray[np.floating[Any]]:
    """Return the sum of each row, in float64 where float32 cannot hold it."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums: npt.NDArray[np.floating[Any]] = sizes.sum(axis=1)
    if np.isfinite(sums).all():
        return sums
    if not is_finite(sizes.reshape(-1)):
        raise Unencodable("NaN or infinity among the values")
    wide: npt.NDArray[np.floating[Any]] = sizes.sum(axis=1, dtype=np.float64)
    return wide
