"""News about members, to be attached to whatever is sent: each a bounded number of times, the newest first.

An update is passed on by each peer repeats * log2(n + 1) times, after which all have heard it with a probability
that grows with n (Das, Gupta, Motivala, "SWIM", 2002). There is one update per rank: the newer replaces the older.
Those that were told the least come first, the newest of them before the others, so a burst of old news does not hold
a fresh one up.
"""

from __future__ import annotations

__all__ = ["Updates"]


class Updates:
    """The news that this peer passes on."""

    def __init__(self) -> None:
        #: By how often they were told: rank to packed update, in the order in which they came.
        self._tiers: list[dict[int, bytes]] = []
        #: In which tier the news of a rank are.
        self._told: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._told)

    def add(self, rank: int, packed: bytes) -> None:
        """Tell this of a rank from now on, in place of what was to be told of it before."""
        self.drop(rank)
        self._put(rank, packed, 0)

    def drop(self, rank: int) -> None:
        """Tell nothing of a rank any more."""
        tier = self._told.pop(rank, None)
        if tier is not None:
            del self._tiers[tier][rank]

    def take(self, budget: int, repeats: int, leave_out: int = -1) -> list[bytes]:
        """Return what fits into so many bytes, and count it as told.

        Args:
            budget: bytes, all together.
            repeats: what was told so often is told no more.
            leave_out: a rank whose update goes by another way.
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
        for tier, rank, packed in reversed(taken):  # so that the newest is again the last to be put in, and first out
            self.drop(rank)
            if tier + 1 < repeats:
                self._put(rank, packed, tier + 1)
        return [packed for _, _, packed in taken]

    def _put(self, rank: int, packed: bytes, tier: int) -> None:
        while len(self._tiers) <= tier:
            self._tiers.append({})
        self._tiers[tier][rank] = packed
        self._told[rank] = tier
