"""The trainers of simulated peers: the code of real ones, cut where a real one would wait.

A gossiping peer runs `peers.steps.gossip_steps` on a session without thread and socket. Collective ones do what
`peers.steps.allreduce_steps` and `peers.steps.server_steps` do, which block while they wait and so cannot be used as
they are; what is averaged or served goes through the same `gossip.collective` as in a real peer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from benchmarks.study.learner import Learner
from benchmarks.study.rules import moves
from gossip import events
from gossip.collective.server import CENTRE
from gossip.core.core import Core
from gossip.events import Event
from peers.methods.method import Method
from peers.model.flat_tensors import FlatTensors
from peers.model.gradients import Gradients
from peers.model.replica import Replica
from peers.model.whole_state import WholeState
from peers.session.consensus import Terms
from peers.steps.gossip_steps import GossipSteps

__all__ = ["Averager", "Feed", "Gossiper", "Server", "Trainer"]

Feed = Callable[[Event], None]


class SimulatedSession:
    """What `GossipSteps` asks of a session, answered by a core in virtual time."""

    def __init__(self, core: Core, feed: Feed) -> None:
        self.policy = core.policy
        self.exchanged: set[int] = set()
        #: There is one thread, so the core itself is asked.
        self.status = core.status
        self._feed = feed
        self._turns = core.status().turns

    def merge(self) -> None:
        """Merge what has arrived."""
        self._feed(events.Merge())

    def step(self) -> float:
        """Look at what a step exchanged that is over."""
        turns = self.status().turns
        self.exchanged = {shard for shard, turn in enumerate(turns) if turn != self._turns[shard]}
        self._turns = turns
        return 0.0

    def consensus(self, terms: Terms) -> float:
        """Refuse: the study measures how far simulated peers are apart, and does not mix them."""
        raise NotImplementedError


class Trainer(ABC):
    """What one peer learns, and its core."""

    def __init__(self, core: Core, learner: Learner) -> None:
        self.core = core
        self.learner = learner

    @abstractmethod
    def start(self) -> bool:
        """Begin; return whether it can train at once."""

    @abstractmethod
    def step(self) -> None:
        """Take the step whose time is over, and hand it to the core."""

    @abstractmethod
    def proceed(self) -> None:
        """Take notice that the core lets the next step begin."""

    def heed(self, effect: events.Effect) -> bool:  # noqa: ARG002
        """Take notice of another effect; return whether it lets training begin."""
        return False


class Gossiper(Trainer):
    """Moves mass."""

    def __init__(self, core: Core, learner: Learner, replica: Replica, method: Method, feed: Feed, rule: str) -> None:
        super().__init__(core, learner)
        self._steps = GossipSteps(SimulatedSession(core, feed), replica, method)
        self._steps.moves = moves(rule, self._steps, replica)
        self._feed = feed

    def start(self) -> bool:
        """Train at once."""
        return True

    def step(self) -> None:
        """Merge, move, and hand over."""
        self.learner.compute()
        self.learner.clip()
        self._steps.begin()
        self._steps.evaluated()
        self.learner.optimizer.step()
        self._steps.end()
        self._feed(events.StepFinished())

    def proceed(self) -> None:
        """Do what the method does after an exchange."""
        self._steps.exchange()


class Averager(Trainer):
    """Averages gradients with all others before each move, as `peers.steps.allreduce_steps` does."""

    def __init__(self, core: Core, learner: Learner, feed: Feed) -> None:
        super().__init__(core, learner)
        self._feed = feed
        self._gradients = Gradients(learner.model)
        self._state = WholeState(learner.model, learner.optimizer, {})

    def start(self) -> bool:
        """Come together with the others. Founders have the same state, and say so; a newcomer gets theirs."""
        self._feed(events.Synchronize(0, 0 if self.core.me.incarnation else 1))
        return False

    def step(self) -> None:
        """Put the gradient in."""
        self.learner.compute()
        self._gradients.gather()
        self._feed(events.Reduce(self._gradients.values, self._gradients.count))

    def proceed(self) -> None:
        """Do nothing: the move is what it is."""

    def heed(self, effect: events.Effect) -> bool:
        """Move by the average."""
        if isinstance(effect, events.Reduced):
            if effect.finite:
                self._gradients.scatter()
            else:
                self._gradients.drop()
                self.learner.finite = False
            self.learner.clip()
            self.learner.optimizer.step()
            self._feed(events.StepFinished())
        elif isinstance(effect, events.StateWanted):
            self._feed(events.Offer(effect.round, self._state.encode(effect.round)))
        elif isinstance(effect, events.Synchronized):
            if effect.state is not None:
                self._feed(events.Advance(self._state.decode(effect.state)))
            return True
        return False


class Server(Trainer):
    """Sends its moves to the centre and goes on from what comes back, as `peers.steps.server_steps` does."""

    def __init__(self, core: Core, learner: Learner, feed: Feed) -> None:
        super().__init__(core, learner)
        self._feed = feed
        self._flat = FlatTensors(list(learner.model.parameters()))
        self._flat.gather()
        self._had = self._flat.values.copy()
        self._move = self._had.copy() if core.me == CENTRE else np.zeros_like(self._had)
        self._trains = False

    def start(self) -> bool:
        """Give the centre's model, or ask for it."""
        self._feed(events.Reduce(self._move))
        return False

    def step(self) -> None:
        """Send the move."""
        self.learner.compute()
        self.learner.clip()
        self.learner.optimizer.step()
        self._flat.gather()
        self._move = self._flat.values - self._had
        self._feed(events.Reduce(self._move))

    def proceed(self) -> None:
        """Do nothing: it has the model already."""

    def heed(self, effect: events.Effect) -> bool:
        """Go on from what came back."""
        if not isinstance(effect, events.Reduced):
            return False
        self._flat.values[:] = self._move
        self._flat.scatter()
        self._had[:] = self._flat.values
        if self._trains:
            self._feed(events.StepFinished())
            return False
        self._trains = True
        return True
