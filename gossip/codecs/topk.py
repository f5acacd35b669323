"""The largest values and their places.

    payload    counts and places, as in `gossip.codecs.places`, of exactly k values
               then those values, encoded by the codec ``values``

k is the share of the count, rounded, at least 1. If several values are equal to the smallest that is sent, the first
ones are taken. The sender keeps the values that are not sent: Lin et al. 2018 ("Deep gradient compression",
arXiv:1712.01887) and `gossip.codecs.feedback`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gossip.codecs.codec import WIDE, Codec, Given, Payload, Unencodable, need_length
from gossip.codecs.half import BF16, FP16
from gossip.codecs.integers import Int4, Int8
from gossip.codecs.none import Uncompressed
from gossip.codecs.places import COUNT_BYTES, PLACE_BYTES, Places, pages, read_counts, read_places, write_places
from gossip.codecs.walk import Rows, saturated
from gossip.errors import Reason, Rejected, SettingsError
from gossip.shares import parse_share
from gossip.values.blocks import Values, is_finite

__all__ = ["Sparse", "TopK", "places_of_largest"]

#: One of this number of values is in the sample, and the guessed threshold lets this multiple of k pass.
_SAMPLED = 64
_MARGIN = 1.25

_VALUES: dict[str, type[Uncompressed] | type[BF16] | type[FP16] | type[Int8] | type[Int4]] = {
    codec.name: codec for codec in (Uncompressed, BF16, FP16, Int8, Int4)
}


class Sparse(NamedTuple):
    """Some values of a shard and their places, increasing."""

    places: Places
    values: Values


class TopK(Codec):
    """The given share of the values, the largest ones, and their places."""

    name = "topk"
    quantises = False

    def __init__(self, *, share: float | str = "1%", values: str = "none") -> None:
        self.share = _read_share(share)
        if not 0 < self.share <= 1:
            raise SettingsError(f"{self.name}: share must be above 0% and at most 100%, not {share}")
        if values not in _VALUES:
            raise SettingsError(f"{self.name}: values must be one of {', '.join(_VALUES)}, not {values!r}")
        self.values = values
        self._inner = _VALUES[values]()

    def kept(self, count: int) -> int:
        """Return how many of ``count`` values are sent."""
        return min(count, max(1, round(self.share * count)))

    def size(self, count: int, dtype: npt.DTypeLike = np.float32) -> int:
        """Return the size in bytes of a payload of ``count`` values."""
        k = self.kept(count)
        return COUNT_BYTES * pages(count) + PLACE_BYTES * k + self._inner.size(k, dtype)

    def _encode(self, given: Given) -> Payload:
        values = given.values
        if values.size and not is_finite(values):
            raise Unencodable("NaN or infinity among the values")
        places = _largest(values, self.kept(values.size))
        return self.encode_some(Sparse(places, values[places]), values.size)

    def encode_some(self, some: Sparse, count: int) -> Payload:
        """Return the payload of `kept(count)` values, which the caller has chosen.

        Raises:
            Unencodable: for NaN and infinity.
        """
        return np.concatenate([*write_places(some.places, count), self._inner.encode(some.values)])

    def decode_some(self, payload: Payload, count: int, dtype: np.dtype[Any]) -> Sparse:
        """Return the values that were sent of a shard of ``count`` values, all finite, or raise `Rejected`."""
        need_length(payload, self.size(count, dtype))
        k, head = self.kept(count), COUNT_BYTES * pages(count)
        counts = read_counts(payload[:head], count)
        if int(counts.sum()) != k:
            raise Rejected(Reason.SHAPE, f"{int(counts.sum())} values in the payload instead of {k}")
        middle = head + PLACE_BYTES * k
        places = read_places(payload[head:middle], counts, count)
        # A copy is aligned for values of more than a byte, and keeps no frame alive.
        return Sparse(places, self._inner.decode(payload[middle:].copy(), k, dtype))

    def _decode(self, payload: Payload, count: int, dtype: np.dtype[Any]) -> Values:
        places, values = self.decode_some(payload, count, dtype)
        out = np.zeros(count, dtype)
        out[places] = values
        return out


def _read_share(share: float | str) -> float:
    """Return the share as a number, or NaN for a text without one: the caller's check of the range then reports it."""
    try:
        return parse_share(share) if isinstance(share, str) else share
    except SettingsError:
        return math.nan


def _largest(values: Values, k: int) -> Places:
    """Return the places of the k largest values, increasing."""
    sizes = np.empty(values.size, WIDE)
    saturated(values, sizes)
    np.abs(sizes, out=sizes)
    return places_of_largest(sizes, k)


def places_of_largest(sizes: Rows, k: int) -> Places:
    """Return the places of the k largest sizes, increasing. If the k-th size occurs several times, the first count."""
    if not k:
        return np.empty(0, np.int64)
    edge = _kth_largest(sizes, k)
    places = np.flatnonzero(sizes >= edge)
    surplus = places.size - k
    if surplus:
        places = np.delete(places, np.flatnonzero(sizes[places] == edge)[-surplus:])
    return places


def _kth_largest(sizes: Rows, k: int) -> float:
    """Return the k-th largest size, exactly. A sample rules out most candidates first."""
    candidates = sizes
    sample = sizes[::_SAMPLED]
    rank = int(k / _SAMPLED * _MARGIN) + _SAMPLED
    if rank < sample.size:
        likely = sizes[sizes >= np.partition(sample, sample.size - rank)[sample.size - rank]]
        if likely.size >= k:  # otherwise the sample was misleading
            candidates = likely
    last = candidates.size - k
    return float(np.partition(candidates, last)[last])
