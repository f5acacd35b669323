"""The steps of a replica whose gradients are averaged over all peers before every move: `allreduce`."""

from __future__ import annotations

import time
from collections.abc import Callable

from gossip.errors import SettingsError
from peers.model.gradients import Gradients
from peers.model.whole_state import WholeState
from peers.session.session import Session
from peers.steps.reduction_steps import ReductionSteps

__all__ = ["AllReduceSteps"]

_NAME = "allreduce"


class AllReduceSteps(ReductionSteps):
    """The steps of a replica that stays equal to all others."""

    def __init__(
        self,
        session: Session,
        gradients: Gradients,
        state: WholeState,
        step: int,
        set_step: Callable[[int], None],
        warn: Callable[[str], None],
    ) -> None:
        """Take part in the averaging; return when this replica equals the others.

        Args:
            session: gathered.
            gradients: of the model.
            state: of the replica.
            step: the number of steps that the replica has made.
            set_step: is called with the others' number of steps, if they have made more.
            warn: is called with a sentence that the user should read.
        """
        super().__init__(session, gradients, state, step, set_step, warn)
        #: Whether the gradients of the step that is under way are averages.
        self._averaged = False
        self._synchronize(state.seal(step))

    def begin(self) -> None:
        """Take part again, if this peer had withdrawn."""
        began = time.monotonic()
        self._averaged = False
        if not self._takes_part:
            self._synchronize()
        self._waited = time.monotonic() - began

    def evaluated(self) -> None:
        """Average the gradients, before the optimizer moves the values."""
        if self._averaged:
            raise SettingsError(
                f"algorithm={_NAME}: the optimizer called its closure a second time in step {self._step + 1}, but "
                "gradients are averaged once per step: use an optimizer that needs them once, or another algorithm"
            )
        began = time.monotonic()
        self._averaged = True
        self._gradients.gather()
        reduced = self._session.reduce(self._gradients.values, self._gradients.count)
        self._take_over()
        if reduced.finite and self._gradients.of_one_kind:
            self._gradients.scatter()
        else:
            self._gradients.drop()
            why = "the average gradient is not finite" if not reduced.finite else "another peer was in consensus()"
            self._warn(f"step {self._step + 1}: {why}: all peers leave this step out")
        self._waited += time.monotonic() - began

    def end(self) -> None:
        """Count the step; the move stays as the optimizer made it."""
        if not self._averaged:
            raise SettingsError(
                f"algorithm={_NAME}: the optimizer moved in step {self._step + 1} without a call of its closure, so no "
                "gradients were averaged: compute them before, and call optimizer.step() without a closure"
            )
        self._step += 1

    def _compared(self, apart: float, rounding: float) -> None:
        """Warn if this replica differed: replicas are equal, unless a script has changed the values of one peer."""
        if apart > rounding:
            self._warn(
                f"consensus() found this replica {apart:.1e} away from the average of all after step {self._step}, and "
                f"has made them equal. With {_NAME} they never differ, unless the values of a model are changed at "
                "some peers and not at all: in place, by load_state_dict, or by another optimizer"
            )
