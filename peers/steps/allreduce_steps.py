"""The steps of a replica whose gradients are averaged over all peers before every move: `allreduce`."""

from __future__ import annotations

import time
from collections.abc import Callable

from peers.model.gradients import Gradients
from peers.model.whole_state import WholeState
from peers.session.session import Engine
from peers.steps.collective_steps import Collective

__all__ = ["Averaging"]


class Averaging(Collective):
    """The steps of a replica that is to stay what the others are."""

    def __init__(
        self,
        engine: Engine,
        gradients: Gradients,
        state: WholeState,
        step: int,
        set_step: Callable[[int], None],
        tell: Callable[[str], None],
    ) -> None:
        """Take part: return when this replica is what the others' are.

        Args:
            engine: gathered.
            gradients: of the model.
            state: of the replica.
            step: how many it has made.
            set_step: is called with another number, if the others have come further.
            tell: is called with a sentence that the user should read.
        """
        super().__init__(engine)
        self._gradients = gradients
        self._state = state
        self._step = step
        self._set_step = set_step
        self._tell = tell
        self._takes_part = False
        self._waited = 0.0
        engine.state = lambda: state.encode(self._step)
        self._synchronize(state.seal(step))

    def begin(self) -> None:
        """Average the gradients, before the optimizer moves the values."""
        began = time.monotonic()
        if not self._takes_part:
            self._synchronize()
        self._gradients.gather()
        reduced = self._engine.reduce(self._gradients.values, self._gradients.count)
        self._take_over()
        if reduced.finite:
            self._gradients.scatter()
        else:
            self._gradients.drop()
            self._tell(f"the average gradient of step {self._step} is not finite: all peers leave this step out")
        self._waited = time.monotonic() - began

    def end(self) -> None:
        """Look at nothing: the move is what it is."""
        self._step += 1

    def exchange(self) -> float:
        """Hand the step over, for the news; return how many seconds it took to wait for the others."""
        return self._waited + self._engine.step()

    def pause(self) -> None:
        """Let nobody wait for this peer until its next step: it has no more data for now."""
        if self._takes_part:
            self._takes_part = False
            self._engine.withdraw()

    def close(self) -> None:
        """Stay until the others have the average of the last step too, and train on without this peer."""
        self.pause()

    def catch_up(self) -> None:
        """Take over the state of whoever has come furthest."""
        self._synchronize()

    def _synchronize(self, seal: int = 0) -> None:
        self._engine.synchronize(self._step, seal)
        self._takes_part = True
        self._take_over()

    def _take_over(self) -> None:
        """Become what the others are, if that was necessary."""
        adopted = self._engine.take_adopted()
        if adopted is not None:
            self._step = self._state.decode(adopted)
            self._set_step(self._step)
            self._engine.core.step = self._step
