"""The steps of a replica that trains alone, and takes an outer step with all others after every h-th step: `outer`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gossip.net.promise import Promise
from peers.methods.outer_average import OuterAverage
from peers.model.whole_state import WholeState
from peers.session.session import Session
from peers.steps.reduction_steps import ReductionSteps

__all__ = ["OuterSteps"]


class OuterSteps(ReductionSteps):
    """Local steps, then the mean of all peers' moves, which travels while the next steps are made.

    The first peer that has made h steps begins the average. A slower peer that finds it begun takes part as soon as the
    round has taken 1 + slack times as long as the first peer needed, with the steps that it has made until then.

    A peer waits for its average, but not for longer than ``wait`` times as long as its steps took: then it makes up to
    tau steps while the average travels. So neither a death nor a slow peer stops the others for long.
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
        #: The average that travels; None: none does.
        self._promise: Promise | None = None
        #: Since when this peer makes the steps of the next average, and until when the others wait gladly for it; None:
        #: they do not wait yet.
        self._began = time.monotonic()
        self._until: float | None = None
        #: Is held while the state is encoded, in the gossip thread, and while it changes.
        self._lock = threading.Lock()
        #: Whether the optimizer moves, so that nobody can have the state; and the round of the state that is wanted.
        self._moving = False
        self._wanted: int | None = None
        #: Whether moves that are in no average yet are kept when another peer's state is taken over. A checkpoint may
        #: be older than that state, which then has its moves.
        self._adopts_moves = False
        average.start()
        self._synchronize(average.seal())
        self._adopts_moves = True

    def begin(self) -> None:
        """Take part again, if this peer had withdrawn."""
        began = time.monotonic()
        if not self._takes_part:
            self._synchronize()
        self._waited = time.monotonic() - began
        with self._lock:
            self._moving = True

    def end(self) -> None:
        """Count the step; take the outer step if the mean is there, and begin the next average if it is time to."""
        with self._lock:
            self._moving = False
            wanted, self._wanted = self._wanted, None
        self._step += 1
        self._average.alone += 1
        if wanted is not None:
            self._session.offer(wanted, self._whole())
        self._land_if_due()
        if self._promise is None and (self._average.alone >= self._session.policy.every or self._is_overdue()):
            seconds = self._session.policy.stands * (time.monotonic() - self._began)
            self._stand_still(self._take_off(), seconds)

    def settle(self) -> None:
        """Wait for the average that travels, so that peers that are saved after the same step fit together."""
        self._land()

    def pause(self) -> None:
        """Wait for the average that travels, and for one that others have begun; then withdraw until the next step."""
        self._land()
        if self._takes_part and self._session.status().called:
            self._take_off()
            self._land()
        super().pause()

    def _is_overdue(self) -> bool:
        """Whether others have waited long enough for this peer."""
        now = time.monotonic()
        if self._until is None and self._session.status().called:
            self._until = now + self._session.policy.slack * (now - self._began)
        return self._until is not None and now >= self._until

    def _take_off(self) -> Promise:
        """Put what this peer has moved into the next average."""
        self._average.gather()
        self._began, self._until = time.monotonic(), None
        self._promise = self._session.begin_reduce(self._gradients.values, self._gradients.count)
        return self._promise

    def _stand_still(self, promise: Promise, seconds: float) -> None:
        """Wait for the average for some time: whoever goes on from the mean learns more than who goes on without."""
        began = time.monotonic()
        if not self._session.wait(promise, seconds):
            self._began = time.monotonic()
            self._waited += self._began - began
        self._land_if_due()

    def _land_if_due(self) -> None:
        """Take the outer step if the mean is there, or if this peer may not go on without it."""
        if self._promise is not None and (self._promise.done or self._average.alone >= self._session.policy.late):
            self._land()

    def _land(self) -> None:
        """Take the outer step that is under way, if one is."""
        if self._promise is None:
            return
        began = time.monotonic()
        reduced = self._session.reduced(self._promise)
        self._promise = None
        self._take_over()
        with self._lock:
            if reduced.finite and self._gradients.of_one_kind:
                self._average.step()
            else:
                why = "the average is not finite" if not reduced.finite else "another peer was in consensus()"
                self._warn(f"step {self._step}: {why}: all peers go back to the values after the last average")
                self._average.rewind()
        landed = time.monotonic()
        self._waited += landed - began
        if not self._average.alone:
            self._began = landed  # it has only waited since

    @property
    def _number(self) -> int:
        return self._average.rounds

    def _encoded(self, number: int) -> bytes | None:
        with self._lock:
            if self._moving:
                self._wanted = number  # it is offered after the step
                return None
            return self._whole()

    def _whole(self) -> bytes:
        """Return the state after the last average."""
        return self._state.encode(self._step, self._average.common)

    def _adopt(self, state: bytes) -> None:
        average = self._average
        with self._lock:
            moved = average.moved() if self._adopts_moves else None
            super()._adopt(state)
            average.adopt(moved)
            if not average.travels:  # the others wait for this peer's first average
                average.alone = max(average.alone, self._session.policy.every - 1)
