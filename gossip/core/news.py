"""What is passed on to the neighbours, and when.

Whatever the news say, everybody passes them on: with each step to the neighbours of the next turn, and at rest four
times a second, so that they are through the swarm after as many rounds as the schedule needs to mix. News are meant for
statements that can be merged in any order and as often as they come; then a lost one does not matter.
"""

from __future__ import annotations

from gossip.exchange.outlet import Outlet
from gossip.exchange.peer_state import PeerState
from gossip.membership import Membership
from gossip.wire.messages import News

__all__ = ["Rumours"]

#: Seconds between two rounds while nothing else happens.
_INTERVAL = 0.25
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
        #: When the next round is due, at rest; None: there is nothing to say.
        self.due_at: float | None = None
        #: Rounds walk the schedule by a count of their own.
        self._turn = 0

    def tell(self, now: float) -> None:
        """Pass the news on to the next neighbours."""
        if not self.body:
            return
        turn, self._turn = self._turn, self._turn + 1
        self.due_at = now + _INTERVAL
        for address, _ in self._state.view.out_edges(turn):
            updates = self._membership.piggyback(_UPDATES) if self._membership is not None else b""
            self._outlet.send(News(self._state.me, address, self.body, updates))

    def tick(self, now: float) -> None:
        """Pass the news on again, if that is due."""
        if self.due_at is not None and self.due_at <= now:
            self.tell(now)
