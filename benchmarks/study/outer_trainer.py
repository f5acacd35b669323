"""The trainer of a simulated peer that takes outer steps: `peers.steps.outer_steps`, cut where a real peer waits."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.study.learner import Learner
from benchmarks.study.trainers import Averager, Feed
from gossip import events
from gossip.core.core import Core
from peers.methods.outer_average import CommonMomentum, OuterAverage
from peers.model.whole_state import WholeState

__all__ = ["OuterAverager"]


class OuterAverager(Averager):
    """Moves alone, and averages what all have moved after every h-th step or when others have waited long enough.

    While it waits for an average it keeps the values that it has moved to. So a run that ends there is judged by the
    mean of what all have come to, which is what ``peer.consensus()`` makes at the end of a real run.
    """

    def __init__(
        self, core: Core, learner: Learner, average: OuterAverage, feed: Feed, clock: Callable[[], float]
    ) -> None:
        super().__init__(core, learner, feed)
        self._average = average
        self._state = WholeState(learner.model, learner.optimizer, {"outer momentum": CommonMomentum(average)})
        self._clock = clock
        self._began = clock()
        #: Until when the others wait gladly; None: they do not wait yet.
        self._until: float | None = None
        average.start()

    def step(self) -> None:
        """Move; put what was moved in if it is time to."""
        self.learner.compute()
        self.learner.clip()
        self.learner.optimizer.step()
        self._average.alone += 1
        if self._average.alone < self.core.policy.every and not self._is_overdue():
            self._feed(events.StepFinished())
            return
        values = [one.detach().clone() for one in self._average.vector.parameters]
        self._average.gather()
        self._average.go_on(values)
        self._feed(events.Reduce(self._average.vector.values, self._average.vector.count))

    def _is_overdue(self) -> bool:
        now = self._clock()
        if self._until is None and self.core.status().called:
            self._until = now + self.core.policy.slack * (now - self._began)
        return self._until is not None and now >= self._until

    def heed(self, effect: events.Effect) -> bool:
        """Take the outer step, give newcomers the values after the last one, or take over those of others."""
        if isinstance(effect, events.Reduced):
            self._average.alone = 0
            self._began, self._until = self._clock(), None
            if effect.finite:
                self._average.step()
            else:
                self._average.rewind()
                self.learner.finite = False
            self._feed(events.StepFinished())
        elif isinstance(effect, events.StateWanted):
            values = self._average.rewind()
            self._feed(events.Offer(effect.round, self._state.encode(self.core.step)))
            self._average.go_on(values)
        elif isinstance(effect, events.Synchronized):
            if effect.state is not None:
                self._feed(events.Advance(self._state.decode(effect.state)))
                self._average.adopt()
                self._average.alone = self.core.policy.every - 1  # the others wait for this peer's first average
            return True
        return False
