"""Small signed integers in 8, 4, 2 bits, and back.

Of ``bits`` bits, a code c in [-m, m] is written as c + 2**(bits - 1), but for 8 bits, where it is an int8 as it is. The
first of a byte's codes is in its lowest bits; bits behind the last code are 0.

All is done on words that hold the codes of one byte, one code to a byte: shifts bring them together, a cast keeps the
lowest byte. No element is ever looked at alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gossip.codecs.codec import Payload
from gossip.errors import Reason, Rejected

__all__ = ["Codes", "pack", "packed_size", "unpack"]

Codes = npt.NDArray[np.int8]

#: By bits: the word that holds the codes of one byte.
_WORDS: dict[int, np.dtype[Any]] = {4: np.dtype(np.uint16), 2: np.dtype(np.uint32)}


def packed_size(count: int, bits: int) -> int:
    """Return the bytes of so many codes."""
    return -(-count * bits // 8)


def pack(codes: Codes, bits: int, out: Payload) -> None:
    """Write codes into bytes, of which there are just enough. The codes may be overwritten."""
    if bits == 8:
        out[:] = codes.view(np.uint8)
        return
    word = _WORDS[bits]
    whole = out.size * word.itemsize
    if codes.size < whole:  # so that the bits behind the last one are 0 in the end
        codes = np.append(codes, np.full(whole - codes.size, -(1 << bits - 1), np.int8))
    unsigned = codes.view(np.uint8)
    unsigned += np.uint8(1 << bits - 1)
    words = unsigned.view(word)
    together = words.copy()
    for place in range(1, word.itemsize):
        together |= words >> word.type(place * (8 - bits))
    out[:] = together.astype(np.uint8)


def unpack(packed: Payload, bits: int, count: int, most: int) -> Codes:
    """Return ``count`` codes, none beyond ``most`` either way, or raise `Rejected`."""
    if bits == 8:
        codes: Codes = packed.view(np.int8)
    else:
        word = _WORDS[bits]
        wide = packed.astype(word)
        words = wide.copy()
        for place in range(1, word.itemsize):
            words |= wide << word.type(place * (8 - bits))
        words &= word.type(int.from_bytes(bytes([(1 << bits) - 1]) * word.itemsize, "little"))
        unsigned = words.view(np.uint8)
        if unsigned[count:].any():
            raise Rejected(Reason.MALFORMED, "bits behind the last value")
        unsigned = unsigned[:count]
        unsigned -= np.uint8(1 << bits - 1)
        codes = unsigned.view(np.int8)
    if count and not (int(codes.min()) >= -most and int(codes.max()) <= most):
        raise Rejected(Reason.MALFORMED, f"a code beyond {most}")
    return codes
