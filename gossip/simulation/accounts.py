"""The books of the whole swarm: what promise 1 is checked against, after every event.

The sum over all peers of what they hold, have in their inbox and in their outbox counts some parcels twice:

- *double*: booked by the receiver, but the sender has not heard yet. Ends when it is released.
- *contested*: booked by a receiver that the sender had declared dead, so the sender took it back as well. Ends when
  the life of either does: what that one holds is written off, less this, which lives on with the other.

And where differences are told (`gossip.exchange.differences`), which carry no mass, x is moved at both ends of an edge
at different times:

- *lopsided*: what a round has moved at one end only. Ends when the other end gets there, and has to move just as much
  the other way; or when the first undoes it; or with the life of either, when it is written off. There is at most one
  such round for an edge and shard.

So at any time, for w and for every component of x:

    sum over peers - double - contested - lopsided + written off  =  what the founders had + what was minted for joiners

When a life ends, by a crash or a reincarnation, all it holds is written off, and its unanswered parcels too, unless
they were booked. One that is booked after all comes out of the write-off again.

None of this looks at how the core works: it reads the cores' books and the effects that they report.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from gossip import events
from gossip.books.inbox import Pile
from gossip.core.core import Core
from gossip.errors import InvariantError
from gossip.events import Effect
from gossip.values.blocks import Values
from gossip.values.layout import Layout
from gossip.wire.messages import Address, Parcel

__all__ = ["Accounts"]

Key = tuple[Address, Address, int]
#: Both ends, the shard, and which round of theirs.
Round = tuple[frozenset[Address], int, int]
#: w, then x.
Amount = npt.NDArray[np.float64]


class _Sequences:
    """A growing set of numbers that are mostly consecutive."""

    def __init__(self) -> None:
        self._below = 0
        self._above: set[int] = set()

    def add(self, number: int) -> bool:
        """Add a number; return False if it is in already."""
        if number < self._below or number in self._above:
            return False
        self._above.add(number)
        while self._below in self._above:
            self._above.remove(self._below)
            self._below += 1
        return True


class Accounts:
    """Conservation of mass, as only somebody who sees everything can check it."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        #: Left side of the equation less the right side. Everything is booked in here; it stays 0.
        self._off: Amount = np.zeros(1 + layout.size)
        #: All mass that there ever was, without signs: the measure of what is a large error.
        self._scale: Amount = np.full(1 + layout.size, 1e-300)
        self._totals: dict[int, Amount] = {}  #: by rank: held, inbox and outbox
        self._flying: dict[int, list[Parcel]] = {}  #: by rank: the outbox
        self._lives: dict[int, Address] = {}
        self._double: dict[Key, Parcel] = {}
        self._contested: dict[Key, Parcel] = {}
        self._orphans: dict[Key, Parcel] = {}  #: unanswered when their sender's life ended
        self._returned: set[Key] = set()  #: taken back by their sender while not booked by anybody
        self._ever: dict[tuple[Address, Address], _Sequences] = {}  #: all that was ever booked, by both ends
        self._lopsided: dict[Round, dict[Address, Values]] = {}  #: what was moved at one end, by who it was
        self._broken: set[Round] = set()  #: those that have moved one end only for ever, since a life ended
        self._newcomers: dict[Address, Amount] = {}  #: what those hold who have no state yet
        #: The weight that was written off, less what came back of it.
        self.written_off = 0.0
        #: The weight that was made for joiners, and for those who came back.
        self.minted = 0.0

    def mint(self, core: Core) -> None:
        """Open the account of a joiner."""
        self.begin(core)
        self.minted += float(self._totals[core.me.rank][0])

    def begin(self, core: Core) -> None:
        """Open the account of a founder. What a life starts with is on both sides of the equation."""
        # A leaver that is told that its life is over may hand the next one over at once: then it is on its way already.
        held = [weight + core.outbox.weight(shard) for shard, weight in enumerate(core.mass.weights)]
        if held != [1.0] * self._layout.shards or list(core.inbox):
            raise InvariantError(f"{core.me} starts its life with something else than a weight of 1 in every shard")
        self._lives[core.me.rank] = core.me
        self._totals[core.me.rank] = np.zeros(1 + self._layout.size)
        self._refresh(core)
        self._off -= self._totals[core.me.rank]
        self._scale += abs(self._totals[core.me.rank])

    def adopts(self, core: Core) -> None:
        """Book that a newcomer's values are replaced by those of donors: copies, minted like its weight.

        To be called before `after`, from the start of its life until it has everything. Meanwhile it merges nothing.
        """
        held = self._held(core)
        self._off -= held - self._newcomers.get(core.me, held)
        self._newcomers = {core.me: held} | {me: old for me, old in self._newcomers.items() if me.rank != core.me.rank}

    def end(self, core: Core) -> None:
        """Close the account of a peer that was killed."""
        self._end_of_life(core.me)

    def after(self, core: Core, effects: Iterable[Effect]) -> None:
        """Book what one event did to one peer."""
        old = self._lives[core.me.rank]
        if old != core.me:
            self._end_of_life(old)
            self.mint(core)
            return
        for effect in effects:
            if isinstance(effect, events.Booked):
                self._booked(effect.parcel)
            elif isinstance(effect, events.Released):
                parcel = self._double.pop(effect.parcel.key, None)
                if parcel is not None:
                    self._add(self._off, parcel, 1)
            elif isinstance(effect, events.TakenBack):
                self._taken_back(effect.parcel)
            elif isinstance(effect, events.Drawn):
                self._drawn(core.me, effect)
        self._refresh(core)

    def error(self) -> float:
        """Return by how much the books are off, relative to all the mass that there ever was."""
        return float((abs(self._off) / self._scale).max())

    @property
    def weight(self) -> float:
        """The weight of all peers and all parcels in flight."""
        twice = sum(parcel.weight for table in (self._double, self._contested) for parcel in table.values())
        return float(sum(total[0] for total in self._totals.values())) - twice

    @property
    def contested(self) -> float:
        """The weight that two peers hold at once, because one falsely declared the other dead."""
        return float(sum(parcel.weight for parcel in self._contested.values()))

    def _held(self, core: Core) -> Amount:
        held: Amount = np.empty(1 + self._layout.size)
        held[0] = sum(core.mass.weights)
        for (start, stop), weight in zip(self._layout.bounds, core.mass.weights, strict=True):
            np.multiply(core.mass.values[start:stop], weight, out=held[1 + start : 1 + stop])
        return held

    def _refresh(self, core: Core) -> None:
        total = self._held(core)
        flying = [entry.parcel for entry in core.outbox]
        for pile in core.inbox:
            self._add(total, pile, 1)
        for parcel in flying:
            self._add(total, parcel, 1)
        self._off += total
        self._off -= self._totals[core.me.rank]
        self._totals[core.me.rank] = total
        self._flying[core.me.rank] = flying

    def _booked(self, parcel: Parcel) -> None:
        if not self._ever.setdefault((parcel.origin, parcel.destination), _Sequences()).add(parcel.sequence):
            raise InvariantError(f"booked twice: {parcel.key}")
        if self._orphans.pop(parcel.key, None) is not None:
            self._write_off(parcel, -1)
            return
        if parcel.key in self._returned and self._lives.get(parcel.origin.rank) != parcel.origin:
            self._write_off(parcel, -1)  # what its sender took back was written off with it
            return
        table = self._contested if parcel.key in self._returned else self._double
        table[parcel.key] = parcel
        self._add(self._off, parcel, -1)

    def _taken_back(self, parcel: Parcel) -> None:
        if self._double.pop(parcel.key, None) is None:
            self._returned.add(parcel.key)
        elif self._lives.get(parcel.destination.rank) == parcel.destination:
            self._contested[parcel.key] = parcel
        else:  # out of the dead receiver's mass, which was written off with this in it
            self._add(self._off, parcel, 1)
            self._write_off(parcel, -1)

    def _move(self, effect: events.Drawn) -> None:
        start, stop = self._layout.bounds[effect.shard]
        self._off[1 + start : 1 + stop] += effect.amount if effect.undone else -effect.amount

    def _drawn(self, me: Address, effect: events.Drawn) -> None:
        self._move(effect)
        key: Round = (frozenset((me, effect.neighbour)), effect.shard, effect.round)
        if self._lives.get(effect.neighbour.rank) != effect.neighbour:
            self._broken ^= {key}  # which the dead, too, may have been moved by, or not
            return
        ends = self._lopsided.setdefault(key, {})
        if effect.undone:
            # If the other end got there as well, and we have not heard, it is now the one that was moved alone.
            if ends.pop(me, None) is None:
                ends[effect.neighbour] = -effect.amount
        elif me in ends:
            raise InvariantError(f"{me} is drawn twice in round {effect.round} by {effect.neighbour}")
        else:
            ends[me] = effect.amount
            if len(ends) == 2 and not np.array_equal(ends[me], -ends[effect.neighbour]):
                raise InvariantError(f"{me} and {effect.neighbour} are drawn by different amounts in a round")
        if len(ends) != 1:
            del self._lopsided[key]
        if key in self._lopsided and any((*key[:2], effect.round + off) in self._lopsided for off in (-1, 1)):
            raise InvariantError(f"{me} and {effect.neighbour} are more than a round apart")

    @property
    def lopsided(self) -> int:
        """How many rounds have moved x at one end and not yet at the other."""
        return len(self._lopsided)

    @property
    def broken_off(self) -> int:
        """How many rounds have moved x at one end only, for ever, since the life of the other has ended."""
        return len(self._broken)

    def _end_of_life(self, address: Address) -> None:
        total = self._totals.pop(address.rank)  # from the sum over peers to the write-off: the equation stays
        self.written_off += float(total[0])
        for parcel in self._flying.pop(address.rank):
            if self._double.pop(parcel.key, None) is None:
                self._orphans[parcel.key] = parcel
            else:  # it lives on with its receiver
                self._add(self._off, parcel, 1)
                self._write_off(parcel, -1)
        # With the receiver its copy goes, and the sender's lives on; with the sender what it took back, and the
        # receiver's lives on. Should the sender have passed it on before, then somebody will fence the receiver yet.
        for key in [key for key, parcel in self._contested.items() if address in (parcel.origin, parcel.destination)]:
            parcel = self._contested.pop(key)
            self._add(self._off, parcel, 1)
            self._write_off(parcel, -1)
        for round_ in [key for key in self._lopsided if address in key[0]]:
            del self._lopsided[round_]  # it becomes a part of what is written off
            self._broken.add(round_)
        del self._lives[address.rank]

    def _write_off(self, parcel: Parcel, sign: int) -> None:
        self.written_off += sign * parcel.weight
        self._add(self._off, parcel, sign)

    def _add(self, amount: Amount, parcel: Parcel | Pile, sign: int) -> None:
        start, stop = self._layout.bounds[parcel.shard]
        amount[0] += sign * parcel.weight
        amount[1 + start : 1 + stop] += sign * parcel.factor * parcel.values
