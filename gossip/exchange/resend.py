"""When an unanswered parcel is sent again: learned from round trips, at doubling intervals, up to a ceiling."""

from __future__ import annotations

from gossip.arrivals import Estimate

__all__ = ["Resend"]

#: Doublings after which any ceiling is reached.
_DOUBLINGS = 30


class Resend:
    """The round trips to each neighbour, and what follows from them.

    Karn's rule: of a parcel that was sent twice nobody knows which copy was answered, so it teaches no round trip; but
    the next parcel is given as long as this one took, until one is answered at the first attempt.
    """

    def __init__(self, first: float, floor: float, ceiling: float) -> None:
        self._first = first
        self._floor = floor
        self._ceiling = ceiling
        self._round_trips: dict[int, Estimate] = {}
        #: By rank, how often the last parcel had to be sent, while that says more than the round trips do.
        self._attempts: dict[int, int] = {}

    def after(self, rank: int, attempts: int | None = None) -> float:
        """Return how long to wait for an answer after a number of attempts; None: after the first of a new parcel."""
        estimate = self._round_trips.get(rank)
        first = self._first if estimate is None else max(self._floor, estimate.deadline(self._ceiling))
        doublings = (self._attempts.get(rank, 1) if attempts is None else attempts) - 1
        return min(self._ceiling, first * 2.0 ** min(doublings, _DOUBLINGS))

    def answered(self, rank: int, attempts: int, seconds: float) -> None:
        """Learn from an acknowledgement that came this number of seconds after the first attempt."""
        if attempts == 1:
            self._round_trips.setdefault(rank, Estimate()).add(seconds)
            self._attempts.pop(rank, None)
        else:
            self._attempts[rank] = attempts

    def forget(self, rank: int) -> None:
        """Start anew with a neighbour that died, left or came back."""
        self._round_trips.pop(rank, None)
        self._attempts.pop(rank, None)
