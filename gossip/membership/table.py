"""All records of one peer, and the order in which it probes the members.

Members are probed in rounds. Each round goes through all members in a new random order, so that a silent member is
found after a bounded time: n intervals within a round, and at most 2n - 1 between two probes of the same member.
Independent draws would have no bound (SWIM, section 4.3). A member that appears during a round is in the next one.

Records of dead members stay: they prevent old lives from returning, and the dead are revisited. The number of records
is bounded by `MEMBERS_LIMIT` ranks; no more newcomers are admitted after that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gossip.membership.bodies import BUCKETS
from gossip.membership.record import Record, State
from topologies.draws import Shuffle, below

__all__ = ["MEMBERS_LIMIT", "Table"]

#: Ranks that a table has room for.
MEMBERS_LIMIT = 1 << 16
_MASK = (1 << 64) - 1
#: The most draws that may hit dead or excluded members before the whole table is searched.
_DRAWS = 16


class Table:
    """Records by rank, including this peer's own."""

    def __init__(self, me: Record, known: Mapping[int, Record], seed: int) -> None:
        self._records = {**known, me.rank: me}
        self._me = me.rank
        self._seed = seed
        self._draws = 0
        #: The number of members whose life has not ended, including this peer.
        self.living = sum(not record.final for record in self._records.values())
        #: The members of this round, followed by those that appeared since; some may have died since.
        self._round: list[int] = []
        self._position = 0
        self._number = 0
        self._new_round()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def get(self, rank: int) -> Record | None:
        """Return the record of a rank, or None."""
        return self._records.get(rank)

    def lives(self, rank: int) -> bool:
        """Whether the rank is a member whose life has not ended."""
        record = self._records.get(rank)
        return record is not None and not record.final

    def put(self, record: Record) -> None:
        """Store a record; it replaces any other of its rank."""
        before = self._records.get(record.rank)
        lived = before is not None and not before.final
        self._records[record.rank] = record
        self.living += (not record.final) - lived
        if not lived and not record.final and record.rank != self._me:
            self._round.append(record.rank)

    def next_to_probe(self) -> int | None:
        """Return the next member of the round, or None if there is no other member."""
        for _ in range(2):
            while self._position < self._size:
                rank = self._round[self._shuffle(self._position)]
                self._position += 1
                if self.lives(rank):
                    return rank
            self._new_round()
        return None

    def some(self, count: int, exclude: Collection[int] = ()) -> list[int]:
        """Draw up to ``count`` other members whose lives have not ended."""
        found: list[int] = []
        for _ in range(_DRAWS * count if self._round else 0):
            self._draws += 1
            rank = self._round[below(len(self._round), self._seed, 1, self._draws)]
            if rank not in found and rank not in exclude and self.lives(rank):
                found.append(rank)
                if len(found) == count:
                    return found
        # Few members live, or few are not excluded: draw from exactly those.
        left = sorted({rank for rank in self._round if self.lives(rank)} - {*found, *exclude})
        while left and len(found) < count:
            self._draws += 1
            found.append(left.pop(below(len(left), self._seed, 1, self._draws)))
        return found

    def a_dead_one(self) -> int | None:
        """Draw a member that is believed dead, but not one that left."""
        if self.living == len(self._records):
            return None
        dead = [record.rank for record in self if record.state is State.DEAD]
        self._draws += 1
        return dead[below(len(dead), self._seed, 2, self._draws)] if dead else None

    def digest(self) -> bytes:
        """Return the sums of the marks of the records, by bucket."""
        sums = [0] * BUCKETS
        for rank, record in self._records.items():
            sums[rank % BUCKETS] += record.mark
        return b"".join((total & _MASK).to_bytes(8, "big") for total in sums)

    def differing(self, digest: bytes) -> list[Record]:
        """Return this peer's records in the buckets that differ from the other's digest."""
        own = self.digest()
        differ = {place for place in range(BUCKETS) if own[8 * place :][:8] != digest[8 * place :][:8]}
        return [record for record in self if record.rank % BUCKETS in differ] if differ else []

    def _new_round(self) -> None:
        self._round = [rank for rank, record in self._records.items() if not record.final and rank != self._me]
        self._size = len(self._round)
        self._position = 0
        self._number += 1
        self._shuffle = Shuffle(self._size, self._seed, 0, self._number)
