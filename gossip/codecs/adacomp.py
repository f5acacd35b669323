"""AdaComp: each block sends only the signs of the values that are about as large as its largest.

    payload    counts, as in `gossip.codecs.places`
               then a scale for each page of 65536 values: float32, little-endian
               then the places
               then a bit for each value that is sent, 1 if it is negative; the first in the lowest bit,
               bits after the last value are 0

Chen et al. 2018, arXiv:1712.02679. Values are the sum of a residual and the latest gradient. A value is sent if another
gradient like the latest would make it as large as the largest of its block is now. So the share adapts to how active
each part of the model is. A value is sent as its sign times the mean of the blocks' largest values. The paper takes
this mean over a layer; here it is over a page. The paper uses blocks of 512 for dense layers, and of 50 for
convolutions; ``block=48`` comes close.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gossip.codecs.codec import WIDE, Codec, Given, Payload, Unencodable, need_length
from gossip.codecs.places import COUNT_BYTES, PAGE, PLACE_BYTES, Places, pages, read_counts, read_places, write_places
from gossip.codecs.scales import SCALE_BYTES, most, read_scales
from gossip.codecs.walk import Rows, check_block, rows_of
from gossip.errors import Reason, Rejected
from gossip.values.blocks import Values

__all__ = ["AdaComp"]


class AdaComp(Codec):
    """The signs of values about as large as the largest of their block: the share adapts itself."""

    name = "adacomp"
    quantises = False
    exact_size = False

    def __init__(self, *, block: int = 512) -> None:
        self.block = check_block(self.name, block)

    def size(self, count: int, dtype: npt.DTypeLike = np.float32) -> int:  # noqa: ARG002
        """Return the largest size in bytes of a payload of ``count`` values: equally large values are all sent."""
        return self._size(count, count)

    def _size(self, count: int, sent: int) -> int:
        return (COUNT_BYTES + SCALE_BYTES) * pages(count) + PLACE_BYTES * sent + -(-sent // 8)

    def _encode(self, given: Given) -> Payload:
        values, latest = given.values, given.latest
        scales = np.zeros(pages(values.size), WIDE)
        top = most(values.dtype, 1)
        room, more = np.empty((2, -(-min(PAGE, values.size) // self.block) * self.block), WIDE)
        found, signs = [], []
        for page, start in enumerate(range(0, values.size, PAGE)):
            part = slice(start, start + PAGE)
            rows = rows_of(values[part], self.block, room)
            ahead = rows_of(latest[part], self.block, more)
            places, scale = _active(rows, ahead)
            scales[page] = min(scale, top)
            signs.append(np.signbit(rows.reshape(-1)[places]))
            found.append(places + start)
        places = np.concatenate(found) if found else np.empty(0, np.int64)
        negative = np.concatenate(signs) if signs else np.empty(0, np.bool_)
        counts, where = write_places(places, values.size)
        return np.concatenate([counts, scales.view(np.uint8), where, np.packbits(negative, bitorder="little")])

    def _decode(self, payload: Payload, count: int, dtype: np.dtype[Any]) -> Values:
        head = COUNT_BYTES * pages(count)
        if payload.size < self._size(count, 0):
            raise Rejected(
                Reason.TRUNCATED, f"{payload.size} bytes of payload instead of {self._size(count, 0)} or more"
            )
        counts = read_counts(payload[:head], count)
        sent = int(counts.sum())
        need_length(payload, self._size(count, sent))
        begin = head + SCALE_BYTES * pages(count)
        end = begin + PLACE_BYTES * sent
        scales = read_scales(payload[head:begin], most(dtype, 1))
        places = read_places(payload[begin:end], counts, count)
        if sent % 8 and int(payload[-1]) >> sent % 8:
            raise Rejected(Reason.MALFORMED, f"bits are set after the last of {sent} values")
        chosen = np.repeat(scales, counts)
        np.negative(
            chosen, out=chosen, where=np.unpackbits(payload[end:], count=sent, bitorder="little").view(np.bool_)
        )
        out = np.zeros(count, dtype)
        out[places] = chosen
        return out


def _active(rows: Rows, ahead: Rows) -> tuple[Places, float]:
    """Return which values of a page are sent, and the mean of the largest of its blocks."""
    sizes = np.abs(rows)
    peaks = sizes.max(axis=1)
    if not np.isfinite(peaks).all():
        raise Unencodable("NaN or infinity among the values")
    with np.errstate(over="ignore"):
        np.add(rows, ahead, out=sizes)
    np.abs(sizes, out=sizes)
    # A block of zeros has nothing to send. A value that the latest gradient made 0 has no sign, so it is not sent.
    places = np.flatnonzero(sizes >= peaks[:, None])
    places = places[rows.reshape(-1)[places] != 0]
    largest = peaks[peaks > 0]
    return places, float(largest.mean(dtype=np.float64)) if largest.size else 0.0
