"""The trainer of a simulated peer that takes outer steps: `peers.steps.outer_steps`, cut where a real peer waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from benchmarks.study.learner import Learner
from benchmarks.study.trainers import Averager, Feed
from gossip import events
from gossip.core.core import Core
from peers.methods.outer_average import CommonMomentum, OuterAverage
from peers.model.whole_state import WholeState

__all__ = ["OuterAverager"]


class OuterAverager(Averager):
    """Moves alone, and averages what all have moved after every h-th step or when others have waited long enough.

    It stands still for a while, and then goes on while the average travels. A run that ends meanwhile is judged by the
    mean of what all have come to.
    """

    def __init__(
        self,
        core: Core,
        learner: Learner,
        average: OuterAverage,
        feed: Feed,
        clock: Callable[[], float],
        at: Callable[[float, Callable[[], None]], None],
    ) -> None:
        super().__init__(core, learner, feed)
        self._average = average
        self._state = WholeState(learner.model, learner.optimizer, {"outer momentum": CommonMomentum(average)})
        self._clock, self._at = clock, at
        self._began = clock()
        #: Until when the others wait gladly; None: they do not wait yet.
        self._until: float | None = None
        #: The mean, until the outer step with it; and whether the trainer waits for it.
        self._reduced: events.Reduced | None = None
        self._waits = False
        average.start()

    def step(self) -> None:
        """Move; put what was moved in if it is time to."""
        self.learner.compute()
        self.learner.clip()
        self.learner.optimizer.step()
        self._average.alone += 1
        self._land()
        if not self._average.travels and (self._average.alone >= self.core.policy.every or self._is_overdue()):
            patience = self.core.policy.stands * (self._clock() - self._began)
            self._average.gather()
            self._began, self._until = self._clock(), None
            self._feed(events.Reduce(self._average.vector.values, self._average.vector.count))
            self._land()
            if self._is_under_way() and patience:
                self._waits = True
                if patience < math.inf and self.core.policy.late:
                    self._at(self._began + patience, partial(self._go_on, self._average.rounds))
                return
        self._waits = self._is_under_way() and self._average.alone >= self.core.policy.late
        if not self._waits:
            self._feed(events.StepFinished())

    def _is_under_way(self) -> bool:
        return self._average.travels

    def _go_on(self, rounds: int) -> None:
        """Go on without the mean of a round, if it is still not there."""
        if self._waits and self._average.rounds == rounds:
            self._waits = False
            self._began = self._clock()
            self._feed(events.StepFinished())

    def _land(self) -> None:
        """Take the outer step if the mean is there."""
        reduced, self._reduced = self._reduced, None
        if reduced is None:
            return
        if reduced.finite:
            self._average.step()
        else:
            self._average.rewind()
            self.learner.finite = False
        if not self._average.alone:
            self._began = self._clock()

    def _is_overdue(self) -> bool:
        now = self._clock()
        if self._until is None and self.core.status().called:
            self._until = now + self.core.policy.slack * (now - self._began)
        return self._until is not None and now >= self._until

    def heed(self, effect: events.Effect) -> bool:
        """Take the outer step, give newcomers the values after the last one, or take over those of others."""
        if isinstance(effect, events.Reduced):
            self._reduced = effect
            if self._waits:
                self._waits = False
                self._land()
                self._feed(events.StepFinished())
        elif isinstance(effect, events.StateWanted):
            self._feed(events.Offer(effect.round, self._state.encode(self.core.step, self._average.common)))
        elif isinstance(effect, events.Synchronized):
            if effect.state is not None:
                self._feed(events.Advance(self._state.decode(effect.state)))
                self._average.adopt(None)
                self._average.alone = self.core.policy.every - 1  # the others wait for this peer's first average
            return True
        return False
