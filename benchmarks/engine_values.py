"""Start values of which every exchange's result is known to the last bit, and the check for it.

Rank r starts with a pattern of small whole numbers plus 8 r. Means of those over powers of two are exact in float32, so
results are compared for equality. Both filling and checking go block by block: they must not add to the peak memory.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "check", "empty", "fill"]

Floats = npt.NDArray[np.float32]

_BLOCK = 1 << 16
_PATTERN: Floats = (np.arange(_BLOCK) % 251).astype(np.float32)
_APART = 8


def empty(mib: int) -> Floats:
    """Return a model of ``mib`` MiB."""
    return np.zeros((mib << 20) // 4, dtype=np.float32)


def fill(values: Floats, rank: int) -> None:
    """Write what the rank starts with."""
    values.reshape(-1, _BLOCK)[:] = _PATTERN + np.float32(_APART * rank)


def check(values: Floats, rank: float, scale: float = 1.0) -> None:
    """Raise unless the values are ``scale`` times those of a (mean) rank."""
    expected = (_PATTERN + np.float32(_APART * rank)) * np.float32(scale)
    for block, found in enumerate(values.reshape(-1, _BLOCK)):
        if not np.array_equal(found, expected):
            first = int(np.argmax(found != expected))
            raise AssertionError(
                f"element {block * _BLOCK + first} is {found[first]}, and should be {expected[first]}: "
                "the exchange computed something else"
            )
