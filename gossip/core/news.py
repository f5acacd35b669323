"""What is passed on to the neighbours, and when.

Whatever the news say, everybody passes them on: with each exchange to the neighbours of the next turn, and at rest four
times a second, so that they are through the swarm after as many rounds as the schedule needs to mix. News are meant for
statements that can be merged in any order and as often as they come; then a lost one does not matter.

Steps without an exchange send all news only every few seconds, and what is fresh in between. Peers that train alone, or
average moves instead of mass, do so to send few bytes, and the news of 8 peers are 0.6 kB.
"""

from __future__ import annotations

import math

from gossip.exchange.outlet import Outlet
from gossip.exchange.peer_state import PeerState
from gossip.membership import Membership
from gossip.wire.messages import News

__all__ = ["Rumours"]

#: Seconds between two rounds while nothing else happens.
_INTERVAL = 0.25
#: Seconds from one round with all news to the next, in steps without an exchange.
_ALONE = 3.0
#: Bytes of updates about members that ride on a neighbour's news.
_UPDATES = 1024


class Rumours:
    """The news of one peer."""

    def __init__(self, state: PeerState, outlet: Outlet, membership: Membership | None) -> None:
        self._state = state
        self._outlet = outlet
        self._membership = membership
        #: What is passed on; empty: nothing yet.
        self.body = b""
        #: The part of it that steps without an exchange pass on too.
        self.fresh = b""
        #: When the next round is due, at rest; None: there is nothing to say.
        self.due_at: float | None = None
        #: When a step without an exchange has to pass all news on, and whether they are others than the last ones.
        self._whole_at = -math.inf
        self._untold = False
        #: Rounds walk the schedule by a count of their own.
        self._turn = 0

    def publish(self, body: bytes, fresh: bytes) -> None:
        """Take in other news."""
        self.body, self.fresh = body, fresh
        self._untold = True

    @property
    def late_at(self) -> float | None:
        """When the news are due while the trainer computes: its step may be long, or the last one; None: never."""
        alone = self._state.policy.trains_alone and self._whole_at > -math.inf
        return self._whole_at if alone and self._untold else None

    def tell(self, now: float) -> None:
        """Pass the news on to the next neighbours."""
        self._whole_at, self._untold = now + _ALONE, False
        self._pass_on(self.body, now)

    def step_alone(self, now: float) -> None:
        """Pass on what is fresh after a step without an exchange; all news if that was long ago or a member changed."""
        if now >= self._whole_at or (self._membership is not None and self._membership.has_news):
            self.tell(now)
        else:
            self._pass_on(self.fresh, now)

    def _pass_on(self, body: bytes, now: float) -> None:
        if not body:
            return
        turn, self._turn = self._turn, self._turn + 1
        self.due_at = now + _INTERVAL
        for address, _ in self._state.view.out_edges(turn):
            updates = self._membership.piggyback(_UPDATES) if self._membership is not None else b""
            self._outlet.send(News(self._state.me, address, body, updates))

    def tick(self, now: float, *, trains: bool) -> None:
        """Pass the news on, if that is due at rest, or while the trainer computes."""
        due = self.late_at if trains else self.due_at
        if due is not None and due <= now:
            self.tell(now)
