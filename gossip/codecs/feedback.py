"""Error feedback: what a codec takes off is added to what is sent next.

Seide et al. 2014; Karimireddy et al. 2019 (arXiv:1901.09847). All that was ever sent plus the residual is all that
was ever given, so nothing is lost, only late. Signs and sparse codecs need it to converge.
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
    """A payload, the values that its receiver decodes, and what is left for the next one."""

    payload: Payload
    carried: Values
    residual: Values


def compensated(
    codec: Codec, values: Values, residual: Values, dtype: np.dtype[np.generic], keys: tuple[int, ...]
) -> Compensated:
    """Encode values together with a residual, which is left as it is: whoever sends the payload takes the new one.

    Raises:
        Unencodable: for NaN and infinity.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = residual + values.astype(residual.dtype, copy=False)
    # Sent as a copy: `none` gives out a view, and the total is taken apart here.
    payload = codec.encode(narrowed(total, dtype), keys=keys, latest=values)
    carried = codec.decode(payload, total.size, dtype)
    total -= carried
    return Compensated(payload, carried, total)


class ErrorFeedback:
    """The residual of one shard towards one receiver, or towards all if all get the same.

    Attributes:
        residual: what was given and not sent. It belongs into a checkpoint: lost, it is lost to training.
    """

    def __init__(self, codec: Codec, count: int, dtype: npt.DTypeLike = np.float32) -> None:
        """Begin without a residual.

        Args:
            codec: what encodes.
            count: the values of the shard.
            dtype: their kind, which is what the receiver decodes to. The residual is float32, or float64 for those.
        """
        self.codec = codec
        self.dtype = np.dtype(dtype)
        self.residual: Values = np.zeros(count, max(self.dtype, WIDE, key=lambda kind: kind.itemsize))

    def encode(self, values: Values, *, keys: tuple[int, ...] = ()) -> Payload:
        """Return the payload of the values and of the residual; what it does not carry is the next residual.

        Raises:
            Unencodable: for NaN and infinity. The residual is as before.
        """
        if values.shape != self.residual.shape:
            raise SettingsError(f"the residual is of {self.residual.size} values, not {values.shape}")
        payload, _, self.residual = compensated(self.codec, values, self.residual, self.dtype, keys)
        return payload

    def take_back(self, payload: Buffer) -> None:
        """Add what a payload carries to the residual: it was not taken."""
        self.residual += self.codec.decode(payload, self.residual.size, self.dtype)


def narrowed(total: Values, dtype: np.dtype[np.generic]) -> Values:
    """Return a copy in a narrower kind, at the end of its range where it is beyond; NaN and infinity stay."""
    out = np.array(total)
    if out.dtype == dtype:
        return out
    limit = largest(dtype)
    np.clip(out, -limit, limit, out=out, where=np.isfinite(total))
    return out.astype(dtype)
