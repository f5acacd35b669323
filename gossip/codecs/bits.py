"""Small signed integers in 8, 4, 2 bits, and back.

A code c in [-m, m] of ``bits`` bits is written as c + 2**(bits - 1). A code of 8 bits is written as an int8. The first
code of a byte is in its lowest bits; bits after the last code are 0.

All operations work on words that hold the codes of one byte, one code per byte of the word. Shifts bring the codes
together, and a cast keeps the lowest byte. There is no loop over single elements.
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
    """Return the size in bytes of ``count`` codes."""
    return -(-count * bits // 8)


def pack(codes: Codes, bits: int, out: Payload) -> None:
    """Write codes into ``out``, which has exactly the bytes that they need. The codes may be overwritten."""
    if bits == 8:
        out[:] = codes.view(np.uint8)
        return
    word = _WORDS[bits]
    whole = out.size * word.itemsize
    if codes.size < whole:  # so that the bits after the last code are 0
        codes = np.append(codes, np.full(whole - codes.size, -(1 << bits - 1), np.int8))
    unsigned = codes.view(np.uint8)
    unsigned += np.uint8(1 << bits - 1)
    words = unsigned.view(word)
    together = words.copy()
    for place in range(1, word.itemsize):
        together |= words >> word.type(place * (8 - bits))
    out[:] = together.astype(np.uint8)


def unpack(packed: Payload, bits: int, count: int, most: int) -> Codes:
    """Return ``count`` codes from ``-most`` to ``most``, or raise `Rejected`."""
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
            raise Rejected(Reason.MALFORMED, f"bits are set after the last of {count} values")
        unsigned = unsigned[:count]
        unsigned -= np.uint8(1 << bits - 1)
        codes = unsigned.view(np.int8)
    if count and not (int(codes.min()) >= -most and int(codes.max()) <= most):
        raise Rejected(Reason.MALFORMED, f"codes from {codes.min()} to {codes.max()}, not from {-most} to {most}")
    return codes
