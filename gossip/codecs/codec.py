"""The interface of codecs: a codec writes the values of a shard in fewer bytes, and reads them back.

A codec is a pure function of the values and of the keys of its draws: no state, no clock, no generator. Only the sender
knows the error, ``values - decode(encode(values))``, so only the sender can keep it: as a residual
(`gossip.codecs.feedback`), or as mass that was not given away.

A payload contains only values. Sender and receiver agree beforehand on the codec, the number of values and their dtype:
the receiver knows its layout. So a payload cannot claim a size, and `Codec.decode` allocates memory for the caller's
count only after it has checked the length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from gossip.errors import GossipError, Reason, Rejected, SettingsError
from gossip.values.blocks import BFLOAT16, Values

__all__ = ["WIDE", "Buffer", "Codec", "Given", "Payload", "Unencodable", "largest", "need_length"]

#: Bytes from the wire: an object with the buffer protocol.
Buffer = bytes | bytearray | memoryview | npt.NDArray[Any]
#: Bytes of a payload: a flat array of uint8, which has the buffer protocol.
Payload = npt.NDArray[np.uint8]

#: The dtype in which codecs calculate. Its largest number is the largest that any codec but ``none`` can carry.
WIDE = np.dtype(np.float32)
_LARGEST = {
    np.dtype(np.float16): float(np.finfo(np.float16).max),
    BFLOAT16: float(np.array(0x7F7F, np.uint16).view(BFLOAT16)),
    np.dtype(np.float32): float(np.finfo(np.float32).max),
    np.dtype(np.float64): float(np.finfo(np.float32).max),
}


class Unencodable(GossipError, ValueError):
    """The values must not be sent: they contain NaN or infinity, or are not a flat vector of floating-point numbers."""


class Given(NamedTuple):
    """The arguments of an encoding."""

    #: Flat and contiguous.
    values: Values
    #: The keys of a stochastic codec's draws.
    keys: tuple[int, ...]
    #: The newest part of the values, if they are the sum of it and of a residual; otherwise the values.
    latest: Values


class Codec(ABC):
    """One way to write a shard's values as bytes."""

    #: The name on the command line.
    name: ClassVar[str]
    #: Whether every value arrives, though rounded. Otherwise the codec is sparse: most values arrive as 0, so it can
    #: only carry something that is added, such as a gradient or a difference of models.
    quantises: ClassVar[bool] = True
    #: Whether the codec may carry mass: all values arrive, each with an error that is a small part of the largest value
    #: of its block. The sender keeps the error, and its z hardly moves.
    carries_mass: ClassVar[bool] = False
    #: Whether the payload depends on the keys.
    stochastic: ClassVar[bool] = False
    #: Whether `size` is exact, not only an upper bound.
    exact_size: ClassVar[bool] = True

    def encode(self, values: Values, *, keys: tuple[int, ...] = (), latest: Values | None = None) -> Payload:
        """Return the payload. It may be a view of the values, so do not change them until it is sent.

        Args:
            values: a flat vector of float16, bfloat16, float32 or float64.
            keys: the keys of the draws, such as (seed, rank, shard, turn). The same keys give the same payload. Two
                payloads with the same keys round in the same direction, so their errors would add up.
            latest: the newest part of the values, if they contain a residual; only ``adacomp`` uses it.

        Raises:
            Unencodable: If there is NaN or infinity among the values, or they are not a vector of numbers.
        """
        for given in (values,) if latest is None else (values, latest):
            if given.ndim != 1 or given.dtype not in _LARGEST or given.size != values.size:
                raise Unencodable(
                    f"values must be a flat vector of floating-point numbers, not {given.shape} {given.dtype}"
                )
        values = np.ascontiguousarray(values)
        return self._encode(Given(values, keys, values if latest is None else latest))

    def decode(self, payload: Buffer, count: int, dtype: npt.DTypeLike) -> Values:
        """Return the ``count`` finite values of a payload, or raise `Rejected`. They may be a view of the payload."""
        kind = np.dtype(dtype)
        if kind not in _LARGEST:
            raise SettingsError(f"dtype must be float16, bfloat16, float32 or float64, not {kind}")
        # Old versions of numpy cannot make an array of an empty buffer.
        empty = not (payload.nbytes if isinstance(payload, np.ndarray | memoryview) else len(payload))
        return self._decode(np.empty(0, np.uint8) if empty else np.frombuffer(payload, np.uint8), count, kind)

    @abstractmethod
    def size(self, count: int, dtype: npt.DTypeLike = np.float32) -> int:
        """Return the size in bytes of a payload of ``count`` values; an upper bound unless `exact_size`."""

    @abstractmethod
    def _encode(self, given: Given) -> Payload:
        """Return the payload."""

    @abstractmethod
    def _decode(self, payload: Payload, count: int, dtype: np.dtype[Any]) -> Values:
        """Return the values, or raise `Rejected`."""


def largest(dtype: np.dtype[Any]) -> float:
    """Return the largest number of this dtype that a codec can carry."""
    return _LARGEST[dtype]


def need_length(payload: Payload, expected: int) -> None:
    """Raise `Rejected` unless the payload has exactly the expected number of bytes."""
    if payload.size != expected:
        reason = Reason.TRUNCATED if payload.size < expected else Reason.OVERSIZED
        raise Rejected(reason, f"{payload.size} bytes of payload instead of {expected}")
