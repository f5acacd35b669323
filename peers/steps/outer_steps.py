"""The steps of a replica that trains alone, and takes an outer step with all others after every h-th step: `outer`."""

from __future__ import annotations

import time
from collections.abc import Callable

from peers.methods.outer_average import OuterAverage
from peers.model.whole_state import WholeState
from peers.session.session import Session
from peers.steps.reduction_steps import ReductionSteps

__all__ = ["OuterSteps"]


class OuterSteps(ReductionSteps):
    """Local steps, then the mean of all peers' moves.

    The first peer that has made h steps begins the average. A slower peer that finds it begun takes part as soon as the
    round has taken 1 + slack times as long as the first peer needed, with the steps that it has made until then.
    """

    own_is_average = False

    def __init__(
        self,
        session: Session,
        average: OuterAverage,
        state: WholeState,
        step: int,
        set_step: Callable[[int], None],
        warn: Callable[[str], None],
    ) -> None:
        """Take part in the averages; return when this replica has what all have in common.

        Args:
            session: gathered.
            average: the outer step.
            state: of the replica, with what all have in common besides the values.
            step: the number of steps that the replica has made.
            set_step: is called with the others' number of steps, if this replica takes over their state.
            warn: is called with a sentence that the user should read.
        """
        super().__init__(session, average.vector, state, step, set_step, warn)
        self._average = average
        #: When the last average ended, and until when the others wait gladly; None: they do not wait yet.
        self._began = time.monotonic()
        self._until: float | None = None
        #: The state for newcomers, while this peer trains before its first average.
        self._first_state: bytes | None = None
        average.start()
        self._synchronize(average.seal())

    def begin(self) -> None:
        """Take part again, if this peer had withdrawn."""
        began = time.monotonic()
        if not self._takes_part:
            self._synchronize()
        self._waited = time.monotonic() - began

    def end(self) -> None:
        """Count the step; average if it is time to, or if others wait for that."""
        self._step += 1
        self._average.alone += 1
        now = time.monotonic()
        if self._average.alone >= self._session.policy.every or self._is_overdue(now):
            self._take_outer_step()
            self._began, self._until = time.monotonic(), None
            self._waited += self._began - now

    def _is_overdue(self, now: float) -> bool:
        """Whether others have waited long enough for this peer."""
        if self._until is None and self._session.status().called:
            self._until = now + self._session.policy.slack * (now - self._began)
        return self._until is not None and now >= self._until

    def _take_outer_step(self) -> None:
        self._average.gather()
        self._first_state = None
        reduced = self._session.reduce(self._gradients.values, self._gradients.count)
        self._take_over()
        self._average.alone = 0
        if reduced.finite and self._gradients.of_one_kind:
            self._average.step()
        else:
            why = "the average is not finite" if not reduced.finite else "another peer was in consensus()"
            self._warn(f"step {self._step}: {why}: all peers go back to the values after the last average")

    @property
    def _number(self) -> int:
        return self._average.rounds

    def _encoded(self) -> bytes:
        return self._first_state or super()._encoded()

    def _synchronize(self, seal: int = 0) -> None:
        # Newcomers ask in another thread, in which the values may be moving from now on.
        self._first_state = self._common()
        super()._synchronize(seal)

    def _common(self) -> bytes:
        """Return the state after the last average."""
        values = self._average.rewind()
        state = self._state.encode(self._step)
        self._average.go_on(values)
        return state

    def _take_over(self) -> bool:
        adopted = super()._take_over()
        if adopted:
            self._average.adopt()
            self._first_state = self._common()
            self._average.alone = self._session.policy.every - 1  # the others wait for this peer's first average
        return adopted
