"""The books of the whole swarm: after every event they check that mass is conserved.

The sum over all peers of the mass that they hold, in the replica, the inbox and the outbox, counts some parcels twice:

- *double*: the receiver has booked the parcel, but the sender does not know yet. This ends when the sender releases it.
- *contested*: a receiver that the sender had declared dead has booked the parcel, and the sender took it back as well.
  This ends with the life of either: its mass is written off, except for this parcel, which the other still holds.

Peers that exchange differences (`gossip.exchange.differences`) send no mass. Such a round moves x at both ends of an
edge, at different times:

- *lopsided*: the amount that a round has moved at one end only. This ends when the other end moves by the same amount
  in the opposite direction; or when the first end undoes its move; or with the life of either, when the amount is
  written off. There is at most one such round per edge and shard.

So at any time, for w and for every component of x:

    sum over peers - double - contested - lopsided + written off  =  mass of the founders + mass minted for joiners

When a life ends, by a crash or a reincarnation, all its mass is written off. Its unanswered parcels are written off
too, unless they were booked. If such a parcel is booked later, it is subtracted from the write-off again.

These checks do not depend on how the core works: they read the cores' books and the effects that the cores report.
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
#: Both ends of an edge, the shard, and the number of the round.
Round = tuple[frozenset[Address], int, int]
#: w, then x.
Amount = npt.NDArray[np.float64]


class _Sequences:
    """A growing set of numbers that are mostly consecutive."""

    def __init__(self) -> None:
        self._below = 0
        self._above: set[int] = set()

    def add(self, number: int) -> bool:
        """Add a number; return False if it was in the set already."""
        if number < self._below or number in self._above:
            return False
        self._above.add(number)
        while self._below in self._above:
            self._above.remove(self._below)
            self._below += 1
        return True


class Accounts:
    """Checks the conservation of mass over all peers and all parcels in flight."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        #: The left side of the equation minus the right side. Every event is booked here, and it must stay 0.
        self._off: Amount = np.zeros(1 + layout.size)
        #: The sum of the absolute values of all mass that ever existed: errors are relative to it.
        self._scale: Amount = np.full(1 + layout.size, 1e-300)
        self._totals: dict[int, Amount] = {}  #: by rank: the mass in the replica, the inbox and the outbox
        self._flying: dict[int, list[Parcel]] = {}  #: by rank: the outbox
        self._lives: dict[int, Address] = {}
        self._double: dict[Key, Parcel] = {}
        self._contested: dict[Key, Parcel] = {}
        self._orphans: dict[Key, Parcel] = {}  #: unanswered when their sender's life ended
        self._returned: set[Key] = set()  #: taken back by their sender before any receiver booked them
        self._ever: dict[tuple[Address, Address], _Sequences] = {}  #: all booked parcels, by sender and receiver
        self._lopsided: dict[Round, dict[Address, Values]] = {}  #: the amount moved at one end, by its address
        self._broken: set[Round] = set()  #: rounds that will never move the other end, because its life ended
        self._newcomers: dict[Address, Amount] = {}  #: the mass of peers that have no state yet
        #: The weight that was written off, minus the weight that was booked afterwards.
        self.written_off = 0.0
        #: The weight that was minted for joiners and restarted peers.
        self.minted = 0.0

    def mint(self, core: Core) -> None:
        """Open the account of a joiner."""
        self.begin(core)
        self.minted += float(self._totals[core.me.rank][0])

    def begin(self, core: Core) -> None:
        """Open the account of a founder. The mass at the start of a life is on both sides of the equation."""
        # A leaving peer that is declared dead may hand its next life over at once: its mass is then in flight already.
        held = [weight + core.outbox.weight(shard) for shard, weight in enumerate(core.mass.weights)]
        if held != [1.0] * self._layout.shards or list(core.inbox):
            raise InvariantError(f"{core.me} does not start its life with a weight of 1 in every shard")
        self._lives[core.me.rank] = core.me
        self._totals[core.me.rank] = np.zeros(1 + self._layout.size)
        self._refresh(core)
        self._off -= self._totals[core.me.rank]
        self._scale += abs(self._totals[core.me.rank])

    def adopts(self, core: Core) -> None:
        """Book that a newcomer's values are replaced by copies of donors' values; they are minted like its weight.

        Call it before `after`, from the start of the newcomer's life until it has its state. Until then it merges
        nothing.
        """
        held = self._held(core)
        self._off -= held - self._newcomers.get(core.me, held)
        self._newcomers = {core.me: held} | {me: old for me, old in self._newcomers.items() if me.rank != core.me.rank}

    def end(self, core: Core) -> None:
        """Close the account of a peer that was killed."""
        self._end_of_life(core.me)

    def after(self, core: Core, effects: Iterable[Effect]) -> None:
        """Book the effects of one event on one peer."""
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
        """Return the error of the books, relative to all mass that ever existed."""
        return float((abs(self._off) / self._scale).max())

    def error_of_grown(self) -> float:
        """Return the error, relative to the most that a peer holds where that is more.

        The sum of values that grow without end has fewer and fewer digits.
        """
        largest = np.max([abs(total) for total in self._totals.values()], axis=0)
        self._scale = np.maximum(self._scale, largest)
        return self.error()

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
            raise InvariantError(f"the parcel {parcel.key} was booked twice")
        if self._orphans.pop(parcel.key, None) is not None:
            self._write_off(parcel, -1)
            return
        if parcel.key in self._returned and self._lives.get(parcel.origin.rank) != parcel.origin:
            self._write_off(parcel, -1)  # its sender took it back, and that mass was written off with the sender
            return
        table = self._contested if parcel.key in self._returned else self._double
        table[parcel.key] = parcel
        self._add(self._off, parcel, -1)

    def _taken_back(self, parcel: Parcel) -> None:
        if self._double.pop(parcel.key, None) is None:
            self._returned.add(parcel.key)
        elif self._lives.get(parcel.destination.rank) == parcel.destination:
            self._contested[parcel.key] = parcel
        else:  # the dead receiver's mass was written off with this parcel in it
            self._add(self._off, parcel, 1)
            self._write_off(parcel, -1)

    def _move(self, effect: events.Drawn) -> None:
        start, stop = self._layout.bounds[effect.shard]
        self._off[1 + start : 1 + stop] += effect.amount if effect.undone else -effect.amount

    def _drawn(self, me: Address, effect: events.Drawn) -> None:
        self._move(effect)
        key: Round = (frozenset((me, effect.neighbour)), effect.shard, effect.round)
        if self._lives.get(effect.neighbour.rank) != effect.neighbour:
            self._broken ^= {key}  # the dead peer may also have moved in this round, or not
            return
        ends = self._lopsided.setdefault(key, {})
        if effect.undone:
            # If the other end has moved as well, and this end does not know, then only the other end is moved now.
            if ends.pop(me, None) is None:
                ends[effect.neighbour] = -effect.amount
        elif me in ends:
            raise InvariantError(f"{me} moved twice in round {effect.round} with {effect.neighbour}")
        else:
            ends[me] = effect.amount
            if len(ends) == 2 and not np.array_equal(ends[me], -ends[effect.neighbour]):
                raise InvariantError(f"{me} and {effect.neighbour} moved by different amounts in round {effect.round}")
        if len(ends) != 1:
            del self._lopsided[key]
        if key in self._lopsided and any((*key[:2], effect.round + off) in self._lopsided for off in (-1, 1)):
            raise InvariantError(f"{me} and {effect.neighbour} are more than a round apart")

    @property
    def lopsided(self) -> int:
        """The number of rounds that have moved x at one end and not yet at the other."""
        return len(self._lopsided)

    @property
    def broken_off(self) -> int:
        """The number of rounds that will never move x at the other end, because its life has ended."""
        return len(self._broken)

    def _end_of_life(self, address: Address) -> None:
        total = self._totals.pop(address.rank)  # moves from the sum over peers to the write-off: the equation holds
        self.written_off += float(total[0])
        for parcel in self._flying.pop(address.rank):
            if self._double.pop(parcel.key, None) is None:
                self._orphans[parcel.key] = parcel
            else:  # its receiver still holds it
                self._add(self._off, parcel, 1)
                self._write_off(parcel, -1)
        # If the receiver died, its copy is gone, and the sender still holds the mass. If the sender died, the mass that
        # it took back is gone, and the receiver still holds its copy. If the sender has passed the mass on before, some
        # peer will fence the receiver later.
        for key in [key for key, parcel in self._contested.items() if address in (parcel.origin, parcel.destination)]:
            parcel = self._contested.pop(key)
            self._add(self._off, parcel, 1)
            self._write_off(parcel, -1)
        for round_ in [key for key in self._lopsided if address in key[0]]:
            del self._lopsided[round_]  # it is written off from now on
            self._broken.add(round_)
        del self._lives[address.rank]

    def _write_off(self, parcel: Parcel, sign: int) -> None:
        self.written_off += sign * parcel.weight
        self._add(self._off, parcel, sign)

    def _add(self, amount: Amount, parcel: Parcel | Pile, sign: int) -> None:
        start, stop = self._layout.bounds[parcel.shard]
        amount[0] += sign * parcel.weight
        amount[1 + start : 1 + stop] += sign * parcel.factor * parcel.values
