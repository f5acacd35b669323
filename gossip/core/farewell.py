"""How a peer leaves with nothing lost: who still has to hear of it, and who inherits what.

    1. `Bye` goes to all members, again and again, until each says `Settled`. Whoever hears it plans without this peer,
       pushes nothing more to it, and says so once all that it had sent is answered. What still comes is refused.
    2. When all have settled, all that is held of each shard goes to one of those who stay; if it refuses, to the next.
    3. Nothing held, nothing in flight: the peer is gone.

Were anything passed on before all have settled, and we had to go at once, a lost answer would double mass: told that we
left, its sender would take back a parcel that we have booked and passed on. What cannot be passed on is written off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gossip.wire.messages import Address

__all__ = ["Farewell"]


class Farewell:
    """What a peer that leaves has still to do."""

    def __init__(self, others: Iterable[Address], shards: int, every: float) -> None:
        """Begin to leave these, saying so again after ``every`` seconds to those who do not answer."""
        self._unsettled = dict.fromkeys(others, -float("inf"))
        self._every = every
        self._tries = [0] * shards
        #: How often in a row each shard was refused; when it may be offered again, and the shards that wait for that.
        self._refusals = [0] * shards
        self._again_at = [-float("inf")] * shards
        self._paused: set[int] = set()
        #: Shards that hold NaN or infinity: nobody would take them, so they are written off.
        self.worthless: set[int] = set()

    @property
    def deadline(self) -> float | None:
        """When something is to be said or tried again."""
        moments = [said + self._every for said in self._unsettled.values() if said > -float("inf")]
        moments += [self._again_at[shard] for shard in self._paused]
        return min(moments, default=None)

    @property
    def settled(self) -> bool:
        """Whether everybody knows, and nothing is in flight to us."""
        return not self._unsettled

    def to_tell(self, now: float) -> list[Address]:
        """Return who is to be told, for the first time or again."""
        # Whatever has become of a shard in the meantime: a moment that is past must not stay the deadline.
        self._paused = {shard for shard in self._paused if self._again_at[shard] > now}
        due = [address for address, said in self._unsettled.items() if said + self._every <= now]
        for address in due:
            self._unsettled[address] = now
        return due

    def settle(self, address: Address) -> None:
        """Take in that a peer has nothing in flight to us."""
        self._unsettled.pop(address, None)

    def forget(self, rank: int) -> None:
        """Wait no more for one that is gone itself."""
        for address in [address for address in self._unsettled if address.rank == rank]:
            del self._unsettled[address]

    def heir(self, shard: int, heirs: Sequence[Address], now: float) -> Address | None:
        """Return who is to be offered the shard now; None: nobody yet, all have refused just now."""
        if self._refusals[shard] >= len(heirs):
            self._refusals[shard] = 0
            self._again_at[shard] = now + self._every
        if now < self._again_at[shard]:
            self._paused.add(shard)
            return None
        self._tries[shard] += 1
        return heirs[(shard + self._tries[shard]) % len(heirs)]

    def refused(self, shard: int) -> None:
        """Take in that an heir sent the shard back."""
        self._refusals[shard] += 1

    def given(self, shard: int) -> None:
        """Nothing of the shard is left here, unless it is refused."""
        self._paused.discard(shard)
