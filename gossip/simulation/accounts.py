"""The books of the whole swarm: what promise 1 is checked against, after every event.

The sum over all peers of what they hold, have in their inbox and in their outbox counts some parcels twice:

- *double*: booked by the receiver, but the sender has not heard yet. Ends when it is released.
- *contested*: booked by a receiver that the sender had declared dead, so the sender took it back as well. Ends when
  that receiver dies or reincarnates: what it holds is written off, less this, which lives on with the sender.

So at any time, for w and for every component of x:

    sum over peers - double - contested + written off - minted  =  what there was at the start

When a life ends, by a crash or a reincarnation, all it holds is written off, and its unanswered parcels too, unless
they were booked. One that is booked after all comes out of the write-off again.

None of this looks at how the core works: it reads the cores' books and the effects that they report.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gossip import events
from gossip.core import Core
from gossip.events import Effect
from gossip.mass import Layout
from gossip.messages import Address, Parcel

__all__ = ["Accounts"]

Key = tuple[Address, Address, int]
#: w, then x.
Amount = npt.NDArray[np.float64]


class Accounts:
    """Conservation of mass, as only somebody who sees everything can check it."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._totals: dict[int, Amount] = {}  #: by rank: held, inbox and outbox
        self._flying: dict[int, list[Parcel]] = {}  #: by rank: the outbox
        self._lives: dict[int, Address] = {}
        self._sum = np.zeros(1 + layout.size)  #: of the totals
        self._twice = np.zeros(1 + layout.size)  #: double and contested
        self._double: dict[Key, Parcel] = {}
        self._contested: dict[Key, Parcel] = {}
        self._orphans: dict[Key, Parcel] = {}  #: unanswered when their sender's life ended
        self._returned: set[Key] = set()  #: taken back by their sender while not booked by anybody
        self.written_off = np.zeros(1 + layout.size)
        self.minted = np.zeros(1 + layout.size)
        self._start = np.zeros(1 + layout.size)
        self._scale = np.full(1 + layout.size, 1e-300)

    def begin(self, core: Core) -> None:
        """Open the account of a founding peer."""
        self._open(core)
        self._start += self._totals[core.me.rank]
        self._scale += abs(self._totals[core.me.rank])

    def mint(self, core: Core) -> None:
        """Open the account of a joiner: all it has is minted."""
        self._open(core)
        self.minted += self._totals[core.me.rank]
        self._scale += abs(self._totals[core.me.rank])

    def end(self, core: Core) -> None:
        """Close the account of a peer that was killed."""
        self._end_of_life(core.me)

    def after(self, core: Core, effects: list[Effect]) -> None:
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
                    self._twice -= self._amount(parcel)
            elif isinstance(effect, events.TakenBack):
                self._taken_back(effect.parcel)
        self._refresh(core)

    def error(self) -> float:
        """Return by how much the books are off, relative to all the mass that there ever was."""
        off = abs(self._sum - self._twice + self.written_off - self.minted - self._start)
        return float((off / self._scale).max())

    @property
    def weight(self) -> float:
        """The weight of all peers and all parcels in flight."""
        return float(self._sum[0] - self._twice[0])

    @property
    def contested(self) -> float:
        """The weight that two peers hold at once, because one falsely declared the other dead."""
        return float(sum(parcel.weight for parcel in self._contested.values()))

    def _open(self, core: Core) -> None:
        self._lives[core.me.rank] = core.me
        self._totals[core.me.rank] = np.zeros(1 + self._layout.size)
        self._refresh(core)

    def _refresh(self, core: Core) -> None:
        weight, x = core.mass.total()
        total = np.concatenate([[weight], x])
        flying = [entry.parcel for entry in core.outbox]
        for parcel in core.inbox:
            self._add(total, parcel)
        for parcel in flying:
            self._add(total, parcel)
        self._sum += total - self._totals[core.me.rank]
        self._totals[core.me.rank] = total
        self._flying[core.me.rank] = flying

    def _booked(self, parcel: Parcel) -> None:
        key = parcel.key
        if key in self._orphans:
            self.written_off -= self._amount(self._orphans.pop(key))
            return
        table = self._contested if key in self._returned else self._double
        table[key] = parcel
        self._twice += self._amount(parcel)

    def _taken_back(self, parcel: Parcel) -> None:
        key = parcel.key
        if key in self._double:
            del self._double[key]
            if self._lives.get(parcel.destination.rank) == parcel.destination:
                self._contested[key] = parcel
            else:
                self._twice -= self._amount(parcel)
                self.written_off -= self._amount(parcel)
        else:
            self._returned.add(key)

    def _end_of_life(self, address: Address) -> None:
        total = self._totals.pop(address.rank)
        self._sum -= total
        self.written_off += total
        for parcel in self._flying.pop(address.rank):
            if parcel.key in self._double:  # it lives on with its receiver
                del self._double[parcel.key]
                self._twice -= self._amount(parcel)
                self.written_off -= self._amount(parcel)
            else:
                self._orphans[parcel.key] = parcel
        for key in [key for key, parcel in self._contested.items() if parcel.destination == address]:
            amount = self._amount(self._contested.pop(key))
            self._twice -= amount
            self.written_off -= amount
        del self._lives[address.rank]

    def _amount(self, parcel: Parcel) -> Amount:
        amount = np.zeros(1 + self._layout.size)
        self._add(amount, parcel)
        return amount

    def _add(self, amount: Amount, parcel: Parcel) -> None:
        start, stop = self._layout.bounds[parcel.shard]
        amount[0] += parcel.weight
        amount[1 + start : 1 + stop] += parcel.weight * parcel.values.astype(np.float64)
