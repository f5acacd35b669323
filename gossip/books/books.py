"""All books of one peer in one life: mass is always in exactly one of them.

The `Mass` that is held, the `Inbox` (arrived, not merged), or the `Outbox` (sent, not answered). A parcel is answered
once and for ever: booked, and the sender forgets it; or refused, and the sender takes it back.
"""

from __future__ import annotations

from gossip.books.inbox import Ask, Inbox
from gossip.books.ledger import Outbox, Verdicts
from gossip.books.mass import Mass
from gossip.wire.messages import Address

__all__ = ["Books"]


class Books:
    """Where one peer's mass is."""

    def __init__(self, mass: Mass, neighbour_bytes: int, inbox_bytes: int, *, apart: bool) -> None:
        """Open the books.

        Args:
            mass: what is held.
            neighbour_bytes: bytes that may be in flight to one neighbour; 0: two models.
            inbox_bytes: bytes of arrived mass that may wait.
            apart: whether parcels that ask for something in return are kept apart while there is room.
        """
        self.mass = mass
        self.neighbour_bytes = neighbour_bytes or 2 * mass.layout.total_bytes
        self.inbox_bytes = inbox_bytes
        self._piles = inbox_bytes // mass.layout.total_bytes if apart else 0
        self._window = 4 * mass.layout.shards + 64

    def new_life(self, in_order: bool) -> None:
        """Start the books of an incarnation: empty."""
        self.outbox = Outbox(self.neighbour_bytes, self._window)
        self.inbox = Inbox(self.mass.layout.shards, self.inbox_bytes, in_order, self._piles)
        #: What others want of our mass, at the next boundary: one ask for each of them and shard.
        self.asks: dict[tuple[int, int], Ask] = {}
        #: The verdicts on what each neighbour, in its present incarnation, has sent.
        self.received: dict[Address, Verdicts] = {}

    def received_from(self, origin: Address) -> Verdicts:
        """Return the verdicts on what a neighbour has sent."""
        return self.received.setdefault(origin, Verdicts(self._window))

    def forget(self, rank: int) -> None:
        """Forget the verdicts on a neighbour whose life is over."""
        for address in [address for address in self.received if address.rank == rank]:
            del self.received[address]

    def own_weight(self, shard: int) -> float:
        """Return the weight of a shard in all books: what is in flight may all come back."""
        return self.mass.weights[shard] + self.inbox.weight(shard) + self.outbox.weight(shard)

    def held(self) -> float:
        """Return the weight that is held or waits to be merged, over all shards."""
        return sum(self.mass.weights) + sum(pile.weight for pile in self.inbox)
