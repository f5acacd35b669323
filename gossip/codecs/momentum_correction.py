"""Momentum correction: sparse gradients need it if the optimizer has momentum.

Lin et al. 2018 (deep gradient compression, arXiv:1712.01887). A gradient that waits in a residual for many steps should
build up momentum meanwhile, as it would in the optimizer. So the sender applies momentum before it leaves values out:

    u <- momentum * u + g        v <- v + u        send the largest of v

Where a value was sent, u and v restart from 0: a stale velocity would continue in the old direction. If the codec
rounds the values, the rounding error stays in v; the paper sends values unrounded. The receiver adds up the payloads
and steps without momentum. The paper's local gradient clipping and warm-up of the share are not implemented.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gossip.codecs.codec import WIDE, Codec, Payload
from gossip.codecs.feedback import narrowed
from gossip.errors import SettingsError
from gossip.values.blocks import Values

__all__ = ["Corrected", "MomentumCorrection", "check_correction", "corrected"]


class Corrected(NamedTuple):
    """A payload, the values that its receiver decodes, and velocity and residual for the next payload."""

    payload: Payload
    carried: Values
    velocity: Values
    residual: Values


def check_correction(codec: Codec, momentum: float) -> None:
    """Raise a `SettingsError` unless momentum can be corrected for this codec, with this momentum."""
    if codec.quantises:
        raise SettingsError(
            f"momentum correction needs a sparse codec, and {codec.name} sends every value, which would reset all "
            "momentum; use topk or adacomp"
        )
    if not 0 <= momentum < 1:
        raise SettingsError(f"momentum must be from 0 to below 1, not {momentum}")


def corrected(
    codec: Codec,
    gradient: Values,
    velocity: Values,
    residual: Values,
    momentum: float,
    dtype: np.dtype[np.generic],
    keys: tuple[int, ...],
) -> Corrected:
    """Encode a gradient by the formulas above. The given velocity and residual do not change.

    Raises:
        Unencodable: If there is NaN or infinity among the values.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        velocity = momentum * velocity
        velocity += gradient
        total = residual + velocity
    payload = codec.encode(narrowed(total, dtype), keys=keys, latest=velocity)
    carried = codec.decode(payload, total.size, dtype)
    velocity[carried != 0] = 0
    total -= carried
    return Corrected(payload, carried, velocity, total)


class MomentumCorrection:
    """Velocity and residual of one shard's gradients.

    Attributes:
        velocity: u above.
        residual: v above, without what was sent. A checkpoint must contain both.
    """

    def __init__(self, codec: Codec, count: int, momentum: float = 0.9, dtype: npt.DTypeLike = np.float32) -> None:
        """Begin at rest.

        Args:
            codec: a sparse codec; a dense one sends every value, which would reset all momentum.
            count: the number of values in the shard.
            momentum: the part of the velocity that is left after a step, from 0 to below 1.
            dtype: the dtype to which the receiver decodes.
        """
        check_correction(codec, momentum)
        self.codec = codec
        self.momentum = momentum
        self.dtype = np.dtype(dtype)
        wide = max(self.dtype, WIDE, key=lambda kind: kind.itemsize)
        self.velocity: Values = np.zeros(count, wide)
        self.residual: Values = np.zeros(count, wide)

    def encode(self, gradient: Values, *, keys: tuple[int, ...] = ()) -> Payload:
        """Return the payload of this step.

        Raises:
            Unencodable: If there is NaN or infinity among the values. Velocity and residual are then unchanged.
        """
        if gradient.shape != self.residual.shape:
            raise SettingsError(
                f"gradient must have the shape of the residual, {self.residual.shape}, not {gradient.shape}"
            )
        found = corrected(self.codec, gradient, self.velocity, self.residual, self.momentum, self.dtype, keys)
        self.velocity, self.residual = found.velocity, found.residual
        return found.payload
