"""Mass that has arrived and waits for the trainer to come to its step boundary.

While a step is computed the values belong to the trainer, so whatever arrives, or is taken back, waits here. It
counts as held: it is acknowledged, and part of the peer's mass. Under a policy that keeps turns in order a parcel of a
turn that this peer has not pushed yet waits for that turn.

Mass is mass, so parcels that will be merged together are piled up: one pile per shard, or per shard and turn, takes no
more memory for a hundred senders than for one. Moves, which have no weight, have a pile of their own.

So has mass that asks for some of ours in return, and it is merged last: what others owed us, their answers above all,
is ours again when it is divided. Where each is answered by itself each has a pile, as long as there is room: then the
first pair is averaged, then the second, and nobody gets but a part of what the ones before left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gossip.values.blocks import Values, blend
from gossip.wire.messages import Address, Parcel

__all__ = ["Ask", "Inbox", "Pile"]

#: The piles of a shard, in the order in which they are merged: moves, mass, those of one who asks each, from 0 on, and
#: what waits for its turn, from there on.
_MOVES, _MASS, _TURNS = -2, -1, 1 << 20


class Ask(NamedTuple):
    """Somebody wants a fraction of our mass in exchange for a parcel of this turn."""

    to: Address
    turn: int
    fraction: float


@dataclass
class Pile:
    """Mass of one shard from one or several parcels, to be merged at once."""

    shard: int
    weight: float
    values: Values
    #: Whether the values are a copy that may be changed.
    own: bool = False
    #: What the parcels in it ask for in return.
    asks: list[Ask] = field(default_factory=list)

    @property
    def factor(self) -> float:
        """What the values are to be multiplied by to be x; see `Parcel`."""
        return self.weight or 1.0


class Inbox:
    """What is booked but not yet merged."""

    def __init__(self, shards: int, limit: int, in_order: bool, piles: int = 0) -> None:
        """Begin, empty.

        Args:
            shards: how many there are.
            limit: bytes that may wait.
            in_order: whether parcels wait for their turn.
            piles: those who ask have piles of their own while there are no more than this number of piles of a shard,
                one of which is kept for what asks for nothing.
        """
        self._limit = limit
        #: What arrives from now on waits for its turn. If that is over, nothing does.
        self.in_order = in_order
        self._most = piles
        self._piles: list[dict[int, Pile]] = [{} for _ in range(shards)]
        self.nbytes = 0
        #: Of these, what asks for something in return.
        self.asking = 0

    def __iter__(self) -> Iterator[Pile]:
        for piles in self._piles:
            yield from piles.values()

    def weight(self, shard: int) -> float:
        """Return the weight that waits for the shard."""
        return sum([pile.weight for pile in self._piles[shard].values()])

    def room(self, parcel: Parcel) -> bool:
        """Whether another peer's parcel fits; one always does when nothing waits."""
        piled = self._key(parcel, parcel.ask > 0) in self._piles[parcel.shard]
        return piled or not self.nbytes or self.nbytes + parcel.values.nbytes <= self._limit

    def add(self, parcel: Parcel, answer: bool) -> None:
        """Let a parcel wait. What we took back ourselves comes in too, and has to fit: it is our own mass."""
        piles, key = self._piles[parcel.shard], self._key(parcel, answer)
        pile = piles.get(key)
        if pile is None:
            pile = piles[key] = Pile(parcel.shard, parcel.weight, parcel.values)
            self.nbytes += parcel.values.nbytes
        else:
            if not pile.own:
                # The frame is read-only, and a parcel of ours that came back may still be in flight.
                pile.values, pile.own = pile.values.copy(), True
            if parcel.weight:
                total = pile.weight + parcel.weight
                blend(pile.values, parcel.values, parcel.weight / total)
                pile.weight = total
            else:
                with np.errstate(over="ignore"):  # what is not finite is found when it is to be sent
                    pile.values += parcel.values
        if answer:
            self.asking += 0 if pile.asks else pile.values.nbytes
            pile.asks.append(Ask(parcel.origin, parcel.turn, parcel.ask))

    def due(self, shard: int, turn: int, owed: bool = False) -> list[Pile]:
        """Take out what is from before a turn, or everything where turns are not kept in order.

        Args:
            shard: of which shard.
            turn: that the shard has come to.
            owed: leave what asks for something in return.
        """
        piles = self._piles[shard]
        last = _TURNS + turn if self.in_order else math.inf
        due = [key for key, pile in piles.items() if key < last and not (owed and pile.asks)]
        return [self._out(piles.pop(key)) for key in sorted(due)]

    def take(self, shard: int) -> Pile | None:
        """Take out one pile of a shard, of whatever turn, but not what has no weight."""
        return self._take(shard, next((key for key in self._piles[shard] if key != _MOVES), None))

    def take_moves(self, shard: int) -> Pile | None:
        """Take out what has no weight."""
        return self._take(shard, _MOVES)

    def _take(self, shard: int, key: int | None) -> Pile | None:
        pile = None if key is None else self._piles[shard].pop(key, None)
        return None if pile is None else self._out(pile)

    def _out(self, pile: Pile) -> Pile:
        self.nbytes -= pile.values.nbytes
        if pile.asks:
            self.asking -= pile.values.nbytes
        return pile

    def _key(self, parcel: Parcel, asks: bool) -> int:
        if not parcel.weight:
            return _MOVES
        if self.in_order:
            return _TURNS + parcel.turn
        if not asks:
            return _MASS
        others = sum(0 <= key < _TURNS for key in self._piles[parcel.shard])
        return others - 1 if others and len(self._piles[parcel.shard]) + 1 >= self._most else others
