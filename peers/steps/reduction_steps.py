"""What the steps of `allreduce` and `outer` have in common: rounds of averages among all peers that take part."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from peers.model.gradients import Gradients
from peers.model.whole_state import WholeState
from peers.session.agreement_errors import AgreementError
from peers.session.session import Session
from peers.steps.collective_steps import CollectiveSteps

__all__ = ["ReductionSteps"]


class ReductionSteps(CollectiveSteps):
    """The steps of a replica that takes part in averages of all peers."""

    def __init__(
        self,
        session: Session,
        gradients: Gradients,
        state: WholeState,
        step: int,
        set_step: Callable[[int], None],
        warn: Callable[[str], None],
    ) -> None:
        """Prepare; `_synchronize` takes part.

        Args:
            session: gathered.
            gradients: of the model: what is averaged.
            state: of the replica.
            step: the number of steps that the replica has made.
            set_step: is called with the others' number of steps, if they have made more.
            warn: is called with a sentence that the user should read.
        """
        super().__init__(session)
        self._name = session.policy.name
        self._gradients = gradients
        self._state = state
        self._step = step
        self._set_step = set_step
        self._warn = warn
        self._takes_part = False
        #: The seconds for which this step waited for other peers.
        self._waited = 0.0
        session.offer_state(self._encoded)

    def _encoded(self, number: int) -> bytes | None:  # noqa: ARG002
        """Return the state for a peer that has to become like this one in a round; called in the gossip thread."""
        return self._state.encode(self._step)

    def exchange(self) -> float:
        """Hand the step over, so that news are passed on; return the seconds of waiting for the others."""
        return self._waited + self._session.step()

    def pause(self) -> None:
        """Withdraw from the averaging until the next step."""
        if self._takes_part:
            self._takes_part = False
            self._session.withdraw()

    def catch_up(self) -> None:
        """Take over the state of the peer that has made the most steps."""
        self._synchronize()

    def compare(self) -> None:
        """Average the values of all peers, so that all have the same."""
        self._gradients.gather_values()
        reduced = self._session.reduce(self._gradients.values)
        self._take_over()
        if not (reduced.finite and self._gradients.of_one_kind):
            raise AgreementError(
                f"algorithm={self._name}: another peer trained while this one was in consensus() after step "
                f"{self._step}, so the values of all were not averaged: let all peers call it at the same point",
                math.inf,
            )
        self._compared(self._gradients.scatter_values(), reduced.count * np.finfo(self._gradients.values.dtype).eps)

    def _compared(self, apart: float, rounding: float) -> None:
        """Take in how far this replica was from the average of all, and what rounding can explain."""

    def close(self) -> None:
        """Stay until the others have the last average too, and can train on without this peer."""
        self.pause()

    @property
    def _number(self) -> int:
        """The number of averages that are part of this replica's state."""
        return self._step

    def _synchronize(self, seal: int = 0) -> None:
        self._session.synchronize(self._number, seal)
        self._takes_part = True
        self._take_over()

    def _take_over(self) -> bool:
        """Take over the state that the others sent, if this replica had to be brought up to date."""
        adopted = self._session.take_adopted()
        if adopted is None:
            return False
        self._adopt(adopted)
        return True

    def _adopt(self, state: bytes) -> None:
        """Become like another peer."""
        self._step = self._state.decode(state)
        self._set_step(self._step)
        self._session.driver.advance(self._step)
