"""A way of exchanging values: what a shard does when its turn comes, and what becomes of what others send.

A new way is a class in a file of its own, listed in `gossip.exchange.ways`. It decides what is sent; `Sender` sends
and books, and `Traffic` receives and merges, so that no way can lose mass.
"""

from __future__ import annotations

from gossip.exchange.sender import Sender
from gossip.wire.messages import Parcel, Proposal

__all__ = ["Exchange"]


class Exchange:
    """One way of exchanging. The base books parcels as mass; others refine that."""

    def __init__(self, sender: Sender) -> None:
        self.out = sender
        self.state = sender.state
        self.new_life()

    def take_turn(self, shard: int, turn: int, now: float) -> None:
        """Send to the neighbours of the turn whatever this way sends: the base sends nothing."""

    def check(self, parcel: Parcel) -> None:
        """Reject a parcel that nobody honest sends this way."""

    def book(self, parcel: Parcel) -> None:
        """Book a parcel of another peer, which is there for the first time and has room."""
        self.out.books.inbox.add(parcel, answer=parcel.ask > 0)

    def take_back(self, parcel: Parcel) -> None:
        """Take back a parcel of ours, which was refused, or whose receiver is dead."""
        self.out.books.inbox.add(parcel, answer=False)

    def hear(self, proposal: Proposal) -> bool:
        """Keep an offer for the next boundary; return whether this way knows what to do with it."""
        del proposal
        return False

    def merged(self, shard: int, now: float) -> None:
        """Do what comes after what has arrived of a shard is merged."""

    def forget(self, rank: int) -> None:
        """Forget all lives of a neighbour."""

    def new_life(self) -> None:
        """Forget what belongs to a life of this peer."""
