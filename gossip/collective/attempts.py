"""How a round is worked at: by a plan, with values as they are, or through a codec; and what is remembered for that."""

from __future__ import annotations

from gossip.collective.attempt import Attempt
from gossip.collective.coded import CodedAttempt
from gossip.collective.plans import choose
from gossip.collective.residuals import Residuals
from gossip.values.blocks import Values
from gossip.values.pool import Pool

__all__ = ["AnyAttempt", "Attempts"]

#: What a round is worked at with.
AnyAttempt = Attempt | CodedAttempt


class Attempts:
    """Begins the attempts of one peer."""

    def __init__(self, pool: Pool, kind: str = "auto", residuals: Residuals | None = None) -> None:
        """Begin.

        Args:
            pool: where the memory of what is sent comes from.
            kind: the kind of plan; auto: the cheapest.
            residuals: of what goes through a codec; None: values go as they are, by the plan.
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
        """Return what a result of so many vectors is to be divided by: a sum, or already a mean."""
        return count if self._residuals is None else 1

    def over(self, finite: bool) -> None:
        """Take in that the round is over, with what our last attempt put in: it counts if the average is finite."""
        if self._residuals is not None:
            (self._residuals.commit if finite else self._residuals.drop)()

    def forget(self) -> None:
        """Take in that the model is another one from now on."""
        if self._residuals is not None:
            self._residuals.clear()
