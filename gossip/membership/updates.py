"""News about members, which are attached to messages: each a bounded number of times, the newest first.

Each peer passes an update on repeats * log2(n + 1) times. Then all peers have it with a probability that grows with n
(Das, Gupta, Motivala, "SWIM", 2002). There is one update per rank: a newer one replaces the older. Updates that were
sent least often come first, and the newest of them before the others, so a burst of old news does not delay new ones.
"""

from __future__ import annotations

__all__ = ["Updates"]


class Updates:
    """The news that this peer passes on."""

    def __init__(self) -> None:
        #: The updates by the number of times that they were sent: rank to packed update, in the order of arrival.
        self._tiers: list[dict[int, bytes]] = []
        #: The tier of each rank's update.
        self._told: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._told)

    def add(self, rank: int, packed: bytes) -> None:
        """Pass on this update of a rank from now on; it replaces the former update of the rank."""
        self.drop(rank)
        self._put(rank, packed, 0)

    def drop(self, rank: int) -> None:
        """Stop passing on the update of a rank."""
        tier = self._told.pop(rank, None)
        if tier is not None:
            del self._tiers[tier][rank]

    def take(self, budget: int, repeats: int, leave_out: int = -1) -> list[bytes]:
        """Return the updates that fit into the budget, and count them as sent.

        Args:
            budget: the most bytes of all updates together.
            repeats: an update that was sent this number of times is dropped.
            leave_out: a rank whose update is sent in another way.
        """
        taken: list[tuple[int, int, bytes]] = []
        for tier, news in enumerate(self._tiers):
            for rank, packed in reversed(news.items()):
                if rank == leave_out:
                    continue
                if len(packed) > budget:
                    budget = 0
                    break
                budget -= len(packed)
                taken.append((tier, rank, packed))
            if not budget:
                break
        for tier, rank, packed in reversed(taken):  # so that the newest is again put in last, and comes out first
            self.drop(rank)
            if tier + 1 < repeats:
                self._put(rank, packed, tier + 1)
        return [packed for _, _, packed in taken]

    def _put(self, rank: int, packed: bytes, tier: int) -> None:
        while len(self._tiers) <= tier:
            self._tiers.append({})
        self._tiers[tier][rank] = packed
        self._told[rank] = tier
