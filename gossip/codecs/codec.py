"""What every codec is: a shard's values in fewer bytes, and back.

A codec is a pure function of the values and of the keys of its draws: no state, no clock, no generator. What is lost on
the way, ``values - decode(encode(values))``, is known to the sender alone, and it is up to the sender to keep it
(`gossip.codecs.feedback`, or as mass that was not given away).

A payload carries nothing but values. Which codec, how many values and of which kind is agreed beforehand: the receiver
knows its layout. So a payload cannot claim a size, and `Codec.decode` allocates what the caller's count needs, after
the length was checked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from gossip.errors import GossipError, Reason, Rejected, SettingsError
from gossip.values.blocks import BFLOAT16, Values

__all__ = ["WIDE", "Buffer", "Codec", "Given", "Payload", "Unencodable", "largest", "need_length"]

#: What has the buffer protocol and comes from the wire.
Buffer = bytes | bytearray | memoryview | npt.NDArray[Any]
#: Bytes of a payload: a flat array of uint8, which has the buffer protocol.
Payload = npt.NDArray[np.uint8]

#: What codecs calculate in, and the largest number that any of them but ``none`` can carry.
WIDE = np.dtype(np.float32)
_LARGEST = {
    np.dtype(np.float16): float(np.finfo(np.float16).max),
    BFLOAT16: float(np.array(0x7F7F, np.uint16).view(BFLOAT16)),
    np.dtype(np.float32): float(np.finfo(np.float32).max),
    np.dtype(np.float64): float(np.finfo(np.float32).max),
}


class Unencodable(GossipError, ValueError):
    """Values that must not be sent: NaN or infinity among them, or not a flat vector of floating-point numbers."""


class Given(NamedTuple):
    """What there is to encode."""

    #: Flat and contiguous.
    values: Values
    #: What the draws of a stochastic codec depend on.
    keys: tuple[int, ...]
    #: The newest part of the values, where they are the sum of it and of a residual; else the values.
    latest: Values


class Codec(ABC):
    """One way to write a shard's values as bytes."""

    #: What users call it.
    name: ClassVar[str]
    #: Whether every value arrives, if rounded. Otherwise it is sparse: most arrive as 0, so that it can only carry what
    #: is added to something, a gradient or a difference of models.
    quantises: ClassVar[bool] = True
    #: Whether it may carry mass: all values arrive, each off by a small part of the largest in its block, so that what
    #: rounding takes off can stay with the sender and its z is hardly moved by it.
    carries_mass: ClassVar[bool] = False
    #: Whether the payload depends on the keys.
    stochastic: ClassVar[bool] = False
    #: Whether `size` is the size, not only a bound.
    exact_size: ClassVar[bool] = True

    def encode(self, values: Values, *, keys: tuple[int, ...] = (), latest: Values | None = None) -> Payload:
        """Return the payload. It may be a view of the values: leave them alone until it is sent.

        Args:
            values: a flat vector of float16, bfloat16, float32 or float64.
            keys: what draws depend on, such as (seed, rank, shard, turn). The same keys, the same payload; two
                payloads with the same keys round in the same direction, which adds up.
            latest: the newest part of the values, where they contain a residual; only ``adacomp`` looks at it.

        Raises:
            Unencodable: for NaN and infinity, and for what is not a vector of numbers.
        """
        for given in (values,) if latest is None else (values, latest):
            if given.ndim != 1 or given.dtype not in _LARGEST or given.size != values.size:
                raise Unencodable(
                    f"a shard is a flat vector of floating-point numbers, not {given.shape} {given.dtype}"
                )
        values = np.ascontiguousarray(values)
        return self._encode(Given(values, keys, values if latest is None else latest))

    def decode(self, payload: Buffer, count: int, dtype: npt.DTypeLike) -> Values:
        """Return the ``count`` finite values of a payload, or raise `Rejected`. They may be a view of it."""
        kind = np.dtype(dtype)
        if kind not in _LARGEST:
            raise SettingsError(f"values are float16, bfloat16, float32 or float64, not {kind}")
        # Old versions of numpy make nothing of an empty buffer.
        empty = not (payload.nbytes if isinstance(payload, np.ndarray | memoryview) else len(payload))
        return self._decode(np.empty(0, np.uint8) if empty else np.frombuffer(payload, np.uint8), count, kind)

    @abstractmethod
    def size(self, count: int, dtype: npt.DTypeLike = np.float32) -> int:
        """Return the bytes of a payload of so many values; where not `exact_size`, the most that they can be."""

    @abstractmethod
    def _encode(self, given: Given) -> Payload:
        """Return the payload."""

    @abstractmethod
    def _decode(self, payload: Payload, count: int, dtype: np.dtype[Any]) -> Values:
        """Return the values, or raise `Rejected`."""


def largest(dtype: np.dtype[Any]) -> float:
    """Return the largest number of this kind that a codec can carry."""
    return _LARGEST[dtype]


def need_length(payload: Payload, expected: int) -> None:
    """Reject a payload that is not exactly so long."""
    if payload.size != expected:
        reason = Reason.TRUNCATED if payload.size < expected else Reason.OVERSIZED
        raise Rejected(reason, f"{payload.size} bytes of payload instead of {expected}")
