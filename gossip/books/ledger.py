"""The exactly-once book of parcels.

`Outbox` is what a peer sent and has no answer to: each parcel stays here, and is not lost, until the receiver
has booked it (then it is forgotten) or has not and never will (then it is taken back). It is bounded:
at most one parcel per shard and neighbour, and a byte budget per neighbour. A slow receiver therefore slows what is
pushed to it; no queue grows.

`Verdicts` is what a peer has answered to one incarnation of a neighbour, by acknowledging or refusing: every sequence
below a floor, and a few above. So a duplicate is told from a new parcel for ever, in constant memory: the sender keeps
within a window of its oldest unanswered parcel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gossip.wire.messages import Address, Parcel

__all__ = ["Entry", "Outbox", "Verdicts"]


@dataclass
class Entry:
    """A parcel that is waiting for its answer."""

    parcel: Parcel
    sent_at: float
    resend_at: float
    attempts: int = 1


@dataclass
class _Link:
    """What was sent to one incarnation of one neighbour."""

    address: Address
    next_sequence: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
    shards: set[int] = field(default_factory=set)
    nbytes: int = 0


class Outbox:
    """Parcels sent and not yet answered."""

    def __init__(self, budget: int, window: int) -> None:
        self._budget = budget
        self._window = window
        self._links: dict[int, _Link] = {}
        self._all: dict[tuple[int, int], Entry] = {}  #: the entries of all links, by (rank, sequence)
        #: The parcels of each shard that are in flight, by (rank, sequence), so that their weight is soon summed.
        self._shards: dict[int, dict[tuple[int, int], float]] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def snapshot(self) -> list[Entry]:
        """Return all entries; safe in a thread that does not own the book."""
        return list(self._all.copy().values())

    def room(self, destination: Address, shard: int, nbytes: int) -> bool:
        """Whether a parcel may be sent: nothing of this shard on the way there, and the budget allows it.

        A parcel larger than the whole budget may go when nothing else is on the way, or it never could.
        """
        link = self._links.get(destination.rank)
        if link is None or link.address != destination or not link.entries:
            return True
        oldest = next(iter(link.entries))
        return (
            shard not in link.shards
            and link.nbytes + nbytes <= self._budget
            and link.next_sequence - oldest < self._window
        )

    def owes(self, rank: int) -> bool:
        """Whether a neighbour has not answered everything yet."""
        link = self._links.get(rank)
        return link is not None and bool(link.entries)

    def next_sequence(self, destination: Address) -> int:
        """Return the sequence of the next parcel to this incarnation of the neighbour."""
        link = self._links.get(destination.rank)
        return 0 if link is None or link.address != destination else link.next_sequence

    def add(self, parcel: Parcel, now: float, resend_at: float) -> None:
        """Book a parcel as sent."""
        link = self._links.get(parcel.destination.rank)
        if link is None or link.address != parcel.destination:
            assert link is None or not link.entries, "parcels to a former incarnation must be taken back first"
            link = self._links[parcel.destination.rank] = _Link(parcel.destination)
        assert parcel.sequence == link.next_sequence
        link.next_sequence += 1
        entry = Entry(parcel, now, resend_at)
        link.entries[parcel.sequence] = entry
        self._all[parcel.destination.rank, parcel.sequence] = entry
        self._shards.setdefault(parcel.shard, {})[parcel.destination.rank, parcel.sequence] = parcel.weight
        link.shards.add(parcel.shard)
        link.nbytes += parcel.nbytes

    def remove(self, destination: Address, sequence: int) -> Entry | None:
        """Take a parcel out of the book, or return None if it is not, or no longer, in it."""
        link = self._links.get(destination.rank)
        if link is None or link.address != destination or sequence not in link.entries:
            return None
        entry = link.entries.pop(sequence)
        self._drop(destination.rank, sequence)
        link.shards.discard(entry.parcel.shard)
        link.nbytes -= entry.parcel.nbytes
        return entry

    def put_off(self, destination: Address, sequence: int, until: float) -> None:
        """Send nothing again before ``until`` that was sent after this one, which was answered just now.

        A link carries parcels one after the other, so those behind have only now come to the front. Those before it are
        not put off: were they not lost, they would have been answered.
        """
        link = self._links.get(destination.rank)
        if link is not None and link.address == destination:
            for later, entry in link.entries.items():
                if later > sequence:
                    entry.resend_at = max(entry.resend_at, until)

    def remove_all(self, rank: int) -> list[Parcel]:
        """Take out everything that was sent to a neighbour, in whatever incarnation."""
        link = self._links.pop(rank, None)
        if link is None:
            return []
        return [self._drop(rank, sequence).parcel for sequence in link.entries]

    def _drop(self, rank: int, sequence: int) -> Entry:
        entry = self._all.pop((rank, sequence))
        del self._shards[entry.parcel.shard][rank, sequence]
        return entry

    def weight(self, shard: int) -> float:
        """Return the weight of a shard that is in flight to anybody."""
        return sum(list(self._shards.get(shard, {}).values()))

    def carries(self, shard: int) -> bool:
        """Whether anything of a shard is in flight to anybody, whatever its weight."""
        return bool(self._shards.get(shard))

    @property
    def resend_at(self) -> float | None:
        """When the first parcel is to be sent again."""
        return min([entry.resend_at for entry in self._all.values()], default=None)

    def check(self) -> str | None:
        """Return what is wrong with the book, or None."""
        if len(self._all) != sum(len(link.entries) for link in self._links.values()):
            return "the book and its links disagree about what is in flight"
        for link in self._links.values():
            shards = [entry.parcel.shard for entry in link.entries.values()]
            nbytes = sum(entry.parcel.nbytes for entry in link.entries.values())
            if len(set(shards)) != len(shards) or set(shards) != link.shards:
                return f"more than one parcel of a shard is in flight to {link.address}: {sorted(shards)}"
            if nbytes != link.nbytes or (len(shards) > 1 and nbytes > self._budget):
                return f"{nbytes} bytes are in flight to {link.address}; the budget is {self._budget}"
            if any(sequence >= link.next_sequence for sequence in link.entries):
                return f"a parcel to {link.address} has a sequence that was not given out yet"
        return None


class Verdicts:
    """The verdicts on the parcels of one incarnation of a neighbour, each given once and kept.

    A verdict must never change: if the first answer is lost and the parcel comes again, a different answer would
    double the mass or lose it. The sender's window bounds what has to be remembered: once a sequence
    has been seen, the sender has had its answers to all that are a window or more older.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._floor = 0  #: every sequence below has a verdict
        self._above: set[int] = set()  #: and so have these
        self._refused: set[int] = set()
        self._repeats = 0

    def repeated(self) -> int:
        """Note that a parcel came which has its verdict already; return how many such came since the last new one."""
        self._repeats += 1
        return self._repeats

    def verdict(self, sequence: int) -> bool | None:
        """Return True for a parcel that was booked, False for one that was refused, None for a new one."""
        if sequence >= self._floor and sequence not in self._above:
            return None
        return sequence not in self._refused

    def fits(self, sequence: int) -> bool:
        """Whether the sequence is near enough to be honest, and to be remembered."""
        return sequence < self._floor + self._window

    def add(self, sequence: int, booked: bool) -> None:
        """Remember a verdict."""
        self._repeats = 0
        self._above.add(sequence)
        if not booked:
            self._refused.add(sequence)
        while self._floor in self._above:
            self._above.remove(self._floor)
            self._floor += 1
        if self._refused:
            newest = max(self._above, default=self._floor - 1)
            self._refused = {old for old in self._refused if old > newest - self._window}
