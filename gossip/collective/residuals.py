"""The residuals of gradients and averages, kept by the peer that encoded them.

Error feedback at both ends of a compressed average (Tang et al. 2019, "DoubleSqueeze", arXiv:1905.05957): a peer keeps
the error of the payloads of its own gradients, and the owner of a part keeps the error of the averages that it sent.
Each adds its residual to what it encodes next, so nothing is lost, only late. Codecs with unbiased stochastic rounding
(qsgd, terngrad) do not need residuals, and their errors are too large for them: the residuals would grow.

A round may begin again, among other peers, and its average may turn out not to be finite. So residuals change only when
the round has ended: an attempt writes to a `Draft`, every draft of a round starts from the same residuals, and `commit`
takes over the last one. When the places change, the owner's residual of its former part moves to the residual of its
own gradients, multiplied by n, because one peer's gradients count for an n-th of the average.

Memory: two vectors of the gradients' size, three with momentum correction, and the same again for a draft.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gossip.codecs import Codec, Payload, Unencodable
from gossip.codecs.codec import WIDE
from gossip.codecs.feedback import compensated
from gossip.codecs.momentum_correction import check_correction, corrected
from gossip.values.blocks import Values

__all__ = ["Coded", "Draft", "Residuals"]


class Coded(NamedTuple):
    """A payload, and the values that all peers decode from it."""

    payload: Payload
    carried: Values


class Residuals:
    """The residuals of one peer."""

    def __init__(self, codec: Codec, correction: float = 0.0) -> None:
        """Begin without residuals.

        Args:
            codec: the codec of gradients and averages.
            correction: the momentum of deep gradient compression, for a sparse codec; 0: none.
        """
        if correction:
            check_correction(codec, correction)
        self.codec = codec
        self.correction = correction
        #: Whether errors are kept.
        self.feedback = not codec.stochastic
        #: The residual of this peer's gradients, and their velocity if momentum is corrected.
        self.own: Values = np.zeros(0, WIDE)
        self.velocity: Values = np.zeros(0, WIDE)
        #: The residual of the averages that this peer sent, and its place and the number of places at that time.
        self.handed: Values = np.zeros(0, WIDE)
        self.seat = 0, 0
        self._draft: Draft | None = None

    def begin(self, n: int, place: int, count: int, dtype: np.dtype[np.generic]) -> Draft:
        """Return the draft for the residuals of an attempt at this place, with ``count`` gradients."""
        wide = max(dtype, WIDE, key=lambda kind: kind.itemsize)
        if self.own.size != count or self.own.dtype != wide:
            self.own = np.zeros(count, wide)
            self.velocity = np.zeros(count if self.correction else 0, wide)
            self.handed = np.zeros(count, wide)
        self._draft = Draft(self, (n, place), dtype)
        return self._draft

    def commit(self) -> None:
        """Take over the draft of the last attempt: its payloads are part of an average that counts."""
        draft, self._draft = self._draft, None
        if draft is not None and self.feedback:
            self.own, self.velocity, self.handed, self.seat = draft.own, draft.velocity, draft.handed, draft.seat

    def drop(self) -> None:
        """Drop the draft of the last attempt: the round does not count."""
        self._draft = None

    def clear(self) -> None:
        """Forget all residuals: they belonged to another model."""
        self._draft = None
        for values in (self.own, self.velocity, self.handed):
            values[:] = 0


class Draft:
    """The residuals after an attempt, if it counts. Parts may be encoded in any order, each once."""

    def __init__(self, before: Residuals, seat: tuple[int, int], dtype: np.dtype[np.generic]) -> None:
        self._codec, self._correction, self._feedback = before.codec, before.correction, before.feedback
        self._dtype = dtype
        self.seat = seat
        if before.seat == seat:
            self._own, self._handed = before.own, before.handed
        else:
            self._own, self._handed = before.own + seat[0] * before.handed, np.zeros_like(before.handed)
        self._velocity = before.velocity
        self.own, self.velocity = np.zeros_like(before.own), np.zeros_like(before.velocity)
        self.handed = np.zeros_like(before.handed)

    def put(self, start: int, values: Values, keys: tuple[int, ...]) -> Coded | None:
        """Encode a part of this peer's gradient; None if it is not finite."""
        part = slice(start, start + values.size)
        try:
            if not self._correction:
                return self._encoded(values, self._own, self.own, part, keys)
            found = corrected(
                self._codec, values, self._velocity[part], self._own[part], self._correction, self._dtype, keys
            )
        except Unencodable:
            return None
        self.own[part], self.velocity[part] = found.residual, found.velocity
        return Coded(found.payload, found.carried)

    def hand_out(self, start: int, mean: Values, keys: tuple[int, ...]) -> Coded | None:
        """Encode a part of the average, which this peer owns; None if it is not finite."""
        try:
            return self._encoded(mean, self._handed, self.handed, slice(start, start + mean.size), keys)
        except Unencodable:
            return None

    def _encoded(self, values: Values, before: Values, after: Values, part: slice, keys: tuple[int, ...]) -> Coded:
        if not self._feedback:
            payload = self._codec.encode(values.astype(self._dtype, copy=False), keys=keys)
            return Coded(payload, self._codec.decode(payload, values.size, self._dtype))
        found = compensated(self._codec, values, before[part], self._dtype, keys)
        after[part] = found.residual
        return Coded(found.payload, found.carried)
