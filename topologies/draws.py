"""Random numbers that every peer can compute alone, in any order.

A draw is a pure function of its integer keys, (seed, step, rank, ...). There is no generator whose state two peers
would have to keep in step. The result does not depend on the random stream of any library, so it is the same on every
machine and in every version of Python and numpy. The mixing function is splitmix64's finalizer (Steele, Lea, Flood,
"Fast splittable pseudorandom number generators", 2014), chained over the keys.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Shuffle", "below", "below_array", "chance", "draw", "draw_array"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIER_1 = 0xBF58476D1CE4E5B9
_MULTIPLIER_2 = 0x94D049BB133111EB


def _absorb(state: int, key: int) -> int:
    z = ((state ^ (key & _MASK)) + _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * _MULTIPLIER_1) & _MASK
    z = ((z ^ (z >> 27)) * _MULTIPLIER_2) & _MASK
    return z ^ (z >> 31)


def draw(*keys: int) -> int:
    """Return 64 random bits that depend on nothing but the keys."""
    state = 0
    for key in keys:
        state = _absorb(state, key)
    return state


def below(bound: int, *keys: int) -> int:
    """Draw an integer from ``range(bound)``. Its bias is below bound / 2**32, which is negligible for real swarms."""
    return ((draw(*keys) >> 32) * bound) >> 32


def chance(probability: float, *keys: int) -> bool:
    """Return True with the given probability, which is rounded to a multiple of 2**-32."""
    return (draw(*keys) >> 32) < int(probability * (1 << 32))


def draw_array(keys: tuple[int, ...], last: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return ``draw(*keys, k)`` for every ``k`` in ``last``, bit for bit."""
    state = np.uint64(draw(*keys))
    z = (state ^ last.astype(np.uint64)) + np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MULTIPLIER_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MULTIPLIER_2)
    return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def below_array(bound: int, keys: tuple[int, ...], last: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return ``below(bound, *keys, k)`` for every ``k`` in ``last``, bit for bit."""
    high = draw_array(keys, last) >> np.uint64(32)
    return np.asarray((high * np.uint64(bound)) >> np.uint64(32), dtype=np.int64)


class Shuffle:
    """A pseudorandom permutation of ``range(n)``; one element, or one position, is computed in O(1).

    A Feistel network on the grid Z_a x Z_b with a*b just above n (Black and Rogaway, "Ciphers with
    arbitrary finite domains", 2002): each round adds a keyed function of one coordinate to the other,
    and a value that lands outside ``range(n)`` goes through the network again. So a peer finds its partner in a random
    matching of 100,000 peers without shuffling 100,000 numbers.
    """

    _ROUNDS = 8
    #: A grid of a few cells needs more rounds before all permutations are equally likely (n = 6 most of all).
    _ROUNDS_WHEN_SMALL = 32
    _SMALL = 64

    def __init__(self, n: int, *keys: int) -> None:
        self._n = n
        self._a = math.isqrt(n - 1) + 1 if n > 1 else 1
        self._b = -(-n // self._a)
        rounds = self._ROUNDS_WHEN_SMALL if n <= self._SMALL else self._ROUNDS
        self._keys = [draw(*keys, r) for r in range(rounds)]

    def __call__(self, position: int) -> int:
        """Return the element at ``position``."""
        value = position
        while True:
            high, low = divmod(value, self._b)
            for r, key in enumerate(self._keys):
                if r % 2:
                    low = (low + (_absorb(key, high) >> 32)) % self._b
                else:
                    high = (high + (_absorb(key, low) >> 32)) % self._a
            value = high * self._b + low
            if value < self._n:
                return value

    def index(self, element: int) -> int:
        """Return the position of ``element``: the inverse of `__call__`."""
        value = element
        while True:
            high, low = divmod(value, self._b)
            for r in reversed(range(len(self._keys))):
                if r % 2:
                    low = (low - (_absorb(self._keys[r], high) >> 32)) % self._b
                else:
                    high = (high - (_absorb(self._keys[r], low) >> 32)) % self._a
            value = high * self._b + low
            if value < self._n:
                return value
