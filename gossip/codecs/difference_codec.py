"""The format of differences (`gossip.exchange.differences`): a payload of any codec, and one factor for all of it.

    payload    of the codec, then the factor: float32, little-endian, from 0 to 1

Estimates converge only if the codec *contracts*: |d - C(d)| < |d|. Unbiased codecs do not contract, terngrad least of
all. Neither does adacomp if the values in the blocks of a page differ much in size. The factor (d, C(d)) / (C(d), C(d))
is optimal: with it |d - f C(d)| is never above |d|, for any codec. For topk it is 1.

*The usual gamma.* Let delta be the part of |d|^2 that arrives of a normal vector: 1 for none, 0.64 for sign, 0.44 for
a tenth of the values, 0.09 for a hundredth. The bound of the paper is proportional to delta where that is small, but
for the worst graph and the worst values, far below what works. delta / (3 - 2 delta) is 1 where nothing is taken off
and a third of delta where nearly all is. With twice as much, a tenth of the values diverges on a complete graph
(docs/reference/algorithms.md).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gossip import codecs
from gossip.codecs.codec import WIDE, Codec, Given, Payload
from gossip.errors import Reason, Rejected
from gossip.values.blocks import Values, dot

__all__ = ["DifferenceCodec"]

_FACTOR = np.dtype("<f4")
#: The normal vector on which delta is measured.
_SEED, _COUNT = 0, 1 << 14


class DifferenceCodec(Codec):
    """Any codec, with the factor that makes it contract."""

    name = "choco"
    quantises = False

    def __init__(self, inner: Codec) -> None:
        self._inner = inner
        #: The name in parcels. It differs from the inner codec's name, because the payload is not mass.
        self.spelled = f"{self.name}:{codecs.spell(inner)}"

    def size(self, count: int, dtype: npt.DTypeLike = np.float32) -> int:
        """Return the size in bytes of a payload of ``count`` values, or an upper bound."""
        return self._inner.size(count, dtype) + _FACTOR.itemsize

    def _encode(self, given: Given) -> Payload:
        values = given.values
        payload = self._inner.encode(values, keys=given.keys)
        factor = _factor(values, self._inner.decode(payload, values.size, values.dtype))
        return np.concatenate([payload, np.array([factor], _FACTOR).view(np.uint8)])

    def _decode(self, payload: Payload, count: int, dtype: np.dtype[Any]) -> Values:
        if payload.size < _FACTOR.itemsize:
            raise Rejected(Reason.TRUNCATED, f"{payload.size} bytes of payload have no room for a factor")
        # The factor comes last, so that the values before it are aligned.
        body, tail = payload[: -_FACTOR.itemsize], payload[-_FACTOR.itemsize :].copy()
        factor = float(tail.view(_FACTOR)[0])
        if not 0 <= factor <= 1:
            raise Rejected(Reason.MALFORMED, f"the factor is {factor}, not from 0 to 1")
        values = self._inner.decode(body, count, dtype)
        wide = dtype if dtype.itemsize >= WIDE.itemsize else WIDE
        out: Values = (values.astype(wide) * wide.type(factor)).astype(dtype)
        return out

    def usual_gamma(self) -> float:
        """Return the default gamma: the part of the way to the neighbours' mean that is safe for this codec."""
        values = np.random.Generator(np.random.PCG64(_SEED)).standard_normal(_COUNT).astype(WIDE)
        carried = self.decode(self.encode(values), _COUNT, WIDE)
        rest = values - carried
        arrives = 1.0 - dot(rest, rest) / dot(values, values)
        return arrives / (3 - 2 * arrives)


def _factor(values: Values, carried: Values) -> float:
    """Return the factor, at most 1, with which ``carried`` is nearest to ``values``."""
    with np.errstate(all="ignore"):
        own, other = values.astype(np.float64), carried.astype(np.float64)
        found = dot(own, other) / (dot(other, other) or 1.0)
    return min(1.0, max(0.0, found)) if math.isfinite(found) else 1.0
