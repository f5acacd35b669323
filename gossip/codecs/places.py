"""The places of the values of a sparse payload within the shard: 2 bytes each.

counts     for each page of 65536 values the number of values that are sent: uint32, little-endian
places     the place of each value within its page: uint16, little-endian, strictly increasing within a page
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gossip.codecs.codec import Payload
from gossip.errors import Reason, Rejected

__all__ = [
    "COUNT_BYTES",
    "PAGE",
    "PLACE_BYTES",
    "Counts",
    "Places",
    "pages",
    "read_counts",
    "read_places",
    "write_places",
]

Places = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]

#: Values per page: the number of places that 2 bytes can express.
PAGE = 1 << 16
COUNT_BYTES = 4
PLACE_BYTES = 2


def pages(count: int) -> int:
    """Return the number of pages of ``count`` values."""
    return -(-count // PAGE)


def write_places(places: Places, count: int) -> tuple[Payload, Payload]:
    """Return the counts and the places, as bytes, of increasing places in a shard of ``count`` values."""
    counts = np.bincount(places >> 16, minlength=pages(count))
    return counts.astype("<u4").view(np.uint8), places.astype("<u2").view(np.uint8)


def read_counts(head: Payload, count: int) -> Counts:
    """Return the number of sent values of each page, or raise `Rejected` if there are more than ``count`` in all."""
    counts = head.view("<u4").astype(np.int64)
    if int(counts.sum()) > count:
        raise Rejected(Reason.SHAPE, f"{int(counts.sum())} values for a shard of {count}")
    return counts


def read_places(body: Payload, counts: Counts, count: int) -> Places:
    """Return the places of the values, as many as the counts say, or raise `Rejected`."""
    places = np.repeat(np.arange(counts.size, dtype=np.int64) * PAGE, counts)
    places += body.view("<u2")
    if places.size:
        if not (places[1:] > places[:-1]).all():
            raise Rejected(Reason.MALFORMED, f"the {places.size} places do not increase strictly")
        if int(places[-1]) >= count:
            raise Rejected(Reason.SHAPE, f"a value at {int(places[-1])} in a shard of {count}")
    return places
