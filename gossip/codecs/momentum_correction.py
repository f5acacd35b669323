"""Momentum correction: what sparse gradients need where the optimizer has momentum.

Lin et al. 2018 (deep gradient compression, arXiv:1712.01887). A gradient that waits in a residual for many steps should
meanwhile have built up momentum, as it would have in the optimizer. So momentum is applied by the sender, before
anything is left out:

    u <- momentum * u + g        v <- v + u        send the largest of v

and where a value was sent, u and v start again: a stale velocity would carry on in the old direction. (If the codec
rounds what it sends, what it takes off stays in v; the paper sends values as they are.) Whoever adds up what arrives
then steps without momentum of its own. The paper's local gradient clipping and warm-up of the share are not part of it.
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
    """A payload, the values that its receiver decodes, and velocity and residual for the next one."""

    payload: Payload
    carried: Values
    velocity: Values
    residual: Values


def check_correction(codec: Codec, momentum: float) -> None:
    """Raise a `SettingsError` unless the codec is one that momentum can be corrected for, by so much."""
    if codec.quantises:
        raise SettingsError(
            f"momentum correction is for sparse codecs, not {codec.name}, which sends every value and so would end all "
            "momentum; use topk or adacomp"
        )
    if not 0 <= momentum < 1:
        raise SettingsError(f"momentum is from 0 to below 1, not {momentum}")


def corrected(
    codec: Codec,
    gradient: Values,
    velocity: Values,
    residual: Values,
    momentum: float,
    dtype: np.dtype[np.generic],
    keys: tuple[int, ...],
) -> Corrected:
    """Encode a gradient by the formulas above; velocity and residual are left as they are.

    Raises:
        Unencodable: for NaN and infinity.
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
        residual: v above, without what was sent. Both belong into a checkpoint.
    """

    def __init__(self, codec: Codec, count: int, momentum: float = 0.9, dtype: npt.DTypeLike = np.float32) -> None:
        """Begin at rest.

        Args:
            codec: what encodes; a sparse one, since a dense one sends every value and so would end all momentum.
            count: the values of the shard.
            momentum: what is left of the velocity after a step, from 0 to below 1.
            dtype: the kind that the receiver decodes to.
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
            Unencodable: for NaN and infinity. Velocity and residual are as before.
        """
        if gradient.shape != self.residual.shape:
            raise SettingsError(f"the residual is of {self.residual.size} values, not {gradient.shape}")
        found = corrected(self.codec, gradient, self.velocity, self.residual, self.momentum, self.dtype, keys)
        self.velocity, self.residual = found.velocity, found.residual
        return found.payload
