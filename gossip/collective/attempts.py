"""The two kinds of attempts at a round, by a plan or through a codec, and the residuals that the codec needs."""

from __future__ import annotations

from gossip.collective.attempt import Attempt
from gossip.collective.coded import CodedAttempt
from gossip.collective.reduction_plans import choose
from gossip.collective.residuals import Residuals
from gossip.values.blocks import Values
from gossip.values.pool import Pool

__all__ = ["AnyAttempt", "Attempts"]

#: An attempt at a round.
AnyAttempt = Attempt | CodedAttempt


class Attempts:
    """Begins the attempts of one peer."""

    def __init__(self, pool: Pool, kind: str = "auto", residuals: Residuals | None = None) -> None:
        """Begin.

        Args:
            pool: the source of memory for chunks.
            kind: the kind of plan; auto: the cheapest.
            residuals: the residuals of the codec; None: values are not compressed and follow the plan.
        """
        self._pool = pool
        self._kind = kind
        self._residuals = residuals

    def begin(self, n: int, place: int, values: Values, lossy: int, keys: tuple[int, ...]) -> AnyAttempt:
        """Return an attempt at the average of these values; see `CodedAttempt` for the arguments."""
        if self._residuals is not None:
            return CodedAttempt(self._residuals, n, place, values, lossy, keys)
        name = choose(n, values.nbytes) if self._kind == "auto" else self._kind
        return Attempt(name, n, place, values, self._pool)

    def divisor(self, count: int) -> int:
        """Return the divisor of a result of ``count`` vectors: the result is a sum, or already a mean."""
        return count if self._residuals is None else 1

    def over(self, finite: bool) -> None:
        """Note that the round has ended with the values of the last attempt. They count if the average is finite."""
        if self._residuals is not None:
            (self._residuals.commit if finite else self._residuals.drop)()

    def forget(self) -> None:
        """Forget the residuals: the model has been replaced."""
        if self._residuals is not None:
            self._residuals.clear()
