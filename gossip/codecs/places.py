"""Where in a shard the values of a sparse payload stand: 2 bytes each.

counts     for each page of 65536 values how many of them are sent: uint32, little-endian
places     the place of each within its page: uint16, little-endian, strictly increasing within a page
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

#: Values to a page: what 2 bytes can tell apart.
PAGE = 1 << 16
COUNT_BYTES = 4
PLACE_BYTES = 2


def pages(count: int) -> int:
    """Return how many pages so many values have."""
    return -(-count // PAGE)


def write_places(places: Places, count: int) -> tuple[Payload, Payload]:
    """Return the counts and the places, as bytes, of increasing places in a shard of ``count`` values."""
    counts = np.bincount(places >> 16, minlength=pages(count))
    return counts.astype("<u4").view(np.uint8), places.astype("<u2").view(np.uint8)


def read_counts(head: Payload, count: int) -> Counts:
    """Return how many values there are of each page; together they are at most ``count``."""
    counts = head.view("<u4").astype(np.int64)
    if int(counts.sum()) > count:
        raise Rejected(Reason.SHAPE, f"{int(counts.sum())} values for a shard of {count}")
    return counts


def read_places(body: Payload, counts: Counts, count: int) -> Places:
    """Return places, of which the counts say how many there are, or raise `Rejected`."""
    places = np.repeat(np.arange(counts.size, dtype=np.int64) * PAGE, counts)
    places += body.view("<u2")
    if places.size:
        if not (places[1:] > places[:-1]).all():
            raise Rejected(Reason.MALFORMED, "the places of values do not increase")
        if int(places[-1]) >= count:
            raise Rejected(Reason.SHAPE, f"a value at {int(places[-1])} in a shard of {count}")
    return places
