"""Error feedback: the error of a payload, its residual, is added to the values of the next one.

Seide et al. 2014; Karimireddy et al. 2019 (arXiv:1901.09847). The sum of all payloads plus the residual is the sum of
all values that were given, so nothing is lost, only late. Signs and sparse codecs need error feedback to converge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gossip.codecs.codec import WIDE, Buffer, Codec, Payload, largest
from gossip.errors import SettingsError
from gossip.values.blocks import Values

__all__ = ["Compensated", "ErrorFeedback", "compensated", "narrowed"]


class Compensated(NamedTuple):
    """A payload, the values that its receiver decodes, and the residual for the next payload."""

    payload: Payload
    carried: Values
    residual: Values


def compensated(
    codec: Codec, values: Values, residual: Values, dtype: np.dtype[np.generic], keys: tuple[int, ...]
) -> Compensated:
    """Encode values together with a residual. The given residual does not change: the sender takes the new one.

    Raises:
        Unencodable: If there is NaN or infinity among the values.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = residual + values.astype(residual.dtype, copy=False)
    # Encode a copy: the payload of `none` is a view of it, and the total is changed below.
    payload = codec.encode(narrowed(total, dtype), keys=keys, latest=values)
    carried = codec.decode(payload, total.size, dtype)
    total -= carried
    return Compensated(payload, carried, total)


class ErrorFeedback:
    """The residual of one shard for one receiver, or for all receivers if all get the same.

    Attributes:
        residual: what was given and not sent. A checkpoint must contain it, otherwise training loses it.
    """

    def __init__(self, codec: Codec, count: int, dtype: npt.DTypeLike = np.float32) -> None:
        """Begin without a residual.

        Args:
            codec: the codec of the payloads.
            count: the number of values in the shard.
            dtype: their dtype, to which the receiver decodes. The residual is float64 for float64, otherwise float32.
        """
        self.codec = codec
        self.dtype = np.dtype(dtype)
        self.residual: Values = np.zeros(count, max(self.dtype, WIDE, key=lambda kind: kind.itemsize))

    def encode(self, values: Values, *, keys: tuple[int, ...] = ()) -> Payload:
        """Return the payload of the values and the residual. What it does not carry becomes the new residual.

        Raises:
            Unencodable: If there is NaN or infinity among the values. The residual is then unchanged.
        """
        if values.shape != self.residual.shape:
            raise SettingsError(
                f"values must have the shape of the residual, {self.residual.shape}, not {values.shape}"
            )
        payload, _, self.residual = compensated(self.codec, values, self.residual, self.dtype, keys)
        return payload

    def take_back(self, payload: Buffer) -> None:
        """Add the values of a payload that did not arrive to the residual."""
        self.residual += self.codec.decode(payload, self.residual.size, self.dtype)


def narrowed(total: Values, dtype: np.dtype[np.generic]) -> Values:
    """Return a copy in a narrower dtype. Values out of its range become its largest number; NaN and infinity stay."""
    out = np.array(total)
    if out.dtype == dtype:
        return out
    limit = largest(dtype)
    np.clip(out, -limit, limit, out=out, where=np.isfinite(total))
    return out.astype(dtype)
