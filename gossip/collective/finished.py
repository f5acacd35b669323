"""The sum, or the mean, that a round ended with, kept for peers that have not finished the round yet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from gossip.collective.attempt import piece_elements
from gossip.collective.attempts import AnyAttempt
from gossip.values.blocks import Values, is_finite

__all__ = ["Finished"]


class Finished:
    """The result of ``count`` vectors, in consecutive parts; and the attempt, if it was computed here."""

    def __init__(
        self,
        number: int,
        count: int,
        bounds: Sequence[int],
        values: Sequence[Values],
        divisor: int,
        digest: int = -1,
        places: Sequence[int] = (),
        attempt: AnyAttempt | None = None,
    ) -> None:
        self.round = number
        self.count = count
        self._divisor = divisor
        self._bounds = bounds
        self._values = values
        #: The round and the group in which it was computed here.
        self.key = number, digest
        self.places = list(places)
        self.attempt = attempt

    @classmethod
    def computed(cls, number: int, digest: int, places: Sequence[int], attempt: AnyAttempt) -> Finished:
        """Keep the result of an attempt."""
        bounds, values = attempt.sums()
        return cls(number, attempt.n, bounds, values, attempt.divisor, digest, places, attempt)

    @classmethod
    def fetched(cls, number: int, count: int, divisor: int, parts: Sequence[Values], dtype: np.dtype[Any]) -> Finished:
        """Keep the result of another peer, from the bytes of its parts."""
        values = [np.frombuffer(part.tobytes(), dtype) for part in parts]
        bounds = [0]
        for one in values:
            bounds.append(bounds[-1] + one.size)
        return cls(number, count, bounds, values, divisor)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._bounds[-1]

    def write(self, out: Values) -> bool:
        """Write the mean, bit-identical to `Attempt.finish`; return whether it is finite."""
        factor = out.dtype.type(1 / self._divisor)
        finite = True
        with np.errstate(over="ignore", invalid="ignore"):
            for start, values in zip(self._bounds, self._values, strict=False):
                part = out[start : start + values.size]
                np.multiply(values, factor, out=part)
                finite = finite and is_finite(part)
        return finite

    def part(self, index: int) -> Values | None:
        """Return a part of the size in which results are sent, or None if there is no such part."""
        step = piece_elements(self.size, self._values[0].itemsize)
        start, stop = index * step, min((index + 1) * step, self.size)
        if not 0 <= start < stop:
            return None
        first, last = bisect_right(self._bounds, start) - 1, bisect_right(self._bounds, stop - 1)
        joined: Values = np.concatenate(self._values[first:last])
        return joined[start - self._bounds[first] : stop - self._bounds[first]]
