"""The steps of a replica that gossips: merge, move, exchange; and what the algorithm does in between."""

from __future__ import annotations

import math
from typing import Protocol

from gossip.core.status import Status
from gossip.policies.policy import Policy
from peers.methods.method import Method
from peers.methods.moves import Moves
from peers.model.replica import Replica
from peers.session.consensus import Terms
from peers.steps.steps import Steps
from topologies import Schedule
from topologies.reach import reach

__all__ = ["GossipSession", "GossipSteps", "stretch"]

#: The steps that momentum remembers, with a factor of 0.9: it averages the noise of these.
_MEMORY = 10
#: Weights that differ by less are the same.
_EVEN = 1e-3


class GossipSession(Protocol):
    """What gossiping steps ask of their session; see `peers.session.session.Session`."""

    @property
    def policy(self) -> Policy:
        """The algorithm."""

    @property
    def exchanged(self) -> set[int]:
        """The shards that were exchanged with the last step."""

    def status(self) -> Status:
        """Return the state of the gossip."""

    def merge(self) -> None:
        """Merge what has arrived into the values."""

    def step(self) -> float:
        """Hand a finished step over; return the seconds that it took."""

    def consensus(self, terms: Terms) -> float:
        """Mix without training until all agree."""


class GossipSteps(Steps):
    """The steps of one replica that pushes mass to its neighbours."""

    own_is_average = False

    def __init__(self, session: GossipSession, replica: Replica, method: Method) -> None:
        self._session = session
        self._replica = replica
        self._method = method
        #: The schedule and the turns of the last answer of `peers`, and that answer.
        self._reached: tuple[Schedule, int, float] | None = None
        #: As the step began, with all that had arrived merged in.
        self._status = session.status()
        self.moves = Moves(replica.layout.shards, replica.shard, self.stretch, replica.buffers)
        method.start()

    def weight(self, shard: int) -> float:
        """Return the weight of a shard as the step began."""
        return self._status.weights[shard]

    def stretch(self, shard: int) -> float:
        """Return how much longer the move of a shard has to be, as the step began."""
        return stretch(self._status, shard)

    def begin(self) -> None:
        """Merge what has arrived, before the optimizer moves the values."""
        if self._session.status().arrivals:
            self._session.merge()
        self._status = self._session.status()
        self.moves.begin()
        self._method.begin(self._session.policy.exchanges(self._status.step + 1))

    def evaluated(self) -> None:
        """Let the method look at the gradients."""
        self._method.evaluated(self.peers)

    def peers(self) -> float:
        """Return the effective number of peers that a shard is averaged over within the memory of momentum."""
        status = self._status
        turns = max(1, round(_MEMORY * self._pace()))
        if self._reached is None or self._reached[:2] != (status.schedule, turns):
            self._reached = status.schedule, turns, reach(status.schedule, turns)
        return self._reached[2]

    def _pace(self) -> float:
        """Return how many turns a shard takes in a step, on average."""
        policy = self._session.policy
        return policy.rounds * self._status.share / policy.every

    def end(self) -> None:
        """Make of the optimizer's move what the algorithm wants; then make it longer where mass is in flight."""
        self._replica.take()
        self._method.end()
        self.moves.end()
        self._replica.put()

    def exchange(self) -> float:
        """Hand the step over to the gossip; return the seconds that it took."""
        waited = self._session.step()
        exchanged = self._session.exchanged
        if exchanged:
            self._method.exchanged(exchanged)
            weights = self._session.status().weights
            balanced = {shard for shard in exchanged if abs(weights[shard] - self.weight(shard)) < _EVEN}
            self._method.balanced(balanced, self._pace())
        self._replica.unite()
        return waited

    def pause(self) -> None:
        """Do nothing: the neighbours go on without this peer by themselves."""

    def consensus(self, terms: Terms) -> float:
        """Mix until all agree within the tolerance; return the disagreement reached."""
        return self._session.consensus(terms)

    def close(self) -> None:
        """Do nothing: a peer hands its mass over when its session closes."""


def stretch(status: Status, shard: int) -> float:
    """Return the weight that a peer holds of a shard and has in flight untrained, relative to what it holds."""
    weight = status.weights[shard]
    return (weight + status.untrained[shard]) / weight if weight > 0 else math.inf
