"""What one peer knows about its edges: what each neighbour was told of it, and what it was told of each neighbour.

An *edge* is two peers, each in one life, and a shard. Both ends keep two estimates, ``mine`` and ``theirs``, which
start at 0: what is ``mine`` here is ``theirs`` there, to the last bit. An edge goes in rounds. In each, both ends
tell a compressed difference once, and an end that has both is drawn towards the other:

    x <- x + g (theirs - mine)        g: the smaller of what both ends said is gamma w_ij

The other end calculates the same with the other sign, whenever it gets there. So the sum over peers stays, though views
of the schedule may differ, and though training goes on in between: an addition commutes with it.

Differences travel as parcels of weight 0 which are held until answered, one per neighbour and shard at a time: so
they arrive once and in order, and rounds need no number. An end is at most one round ahead: it tells no more before it
has heard as often as it has told. Whoever is slow makes its neighbours skip turns, not queue.

*Ends of an edge.* With a life of either end, the estimates are dropped at both. A difference that was not answered is
taken back, and with it what its round moved here. So who leaves, and refuses from then on, takes nothing along; of one
that dies there is at most one round per neighbour and shard that moved one end only, and that is lost with it.

Estimates are never changed in place: edges that are in step share what is ``mine``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xxhash

from gossip.books.mass import ShardCopy
from gossip.codecs.codec import WIDE, Unencodable, largest
from gossip.codecs.difference_codec import DifferenceCodec
from gossip.codecs.feedback import narrowed
from gossip.errors import Reason, Rejected
from gossip.values.blocks import Values, is_finite
from gossip.wire.messages import Address, Parcel

__all__ = ["Choco", "Draw", "Told"]


class Draw(NamedTuple):
    """What a round moves x by."""

    round: int
    amount: Values


class Told(NamedTuple):
    """A difference that goes to a neighbour, and what its round moves, if the neighbour's was there already."""

    snapshot: ShardCopy
    draw: Draw | None


@dataclass
class _Edge:
    """One shard, between us and one life of a neighbour."""

    mine: Values
    theirs: Values
    #: How many differences were told, and how many were heard.
    told: int = 0
    heard: int = 0
    #: g of the last round that we told; once it is complete, what was used.
    gain: float = 0.0
    #: What was heard of a round that we have not told ours of, and the neighbour's g.
    early: tuple[Values, float] | None = None


class Choco:
    """The edges of one peer in one life."""

    def __init__(self, codec: DifferenceCodec) -> None:
        self._codec = codec
        self.new_life()

    def new_life(self) -> None:
        """Forget all edges."""
        self._edges: dict[tuple[Address, int], _Edge] = {}
        #: What edges that start now share.
        self._zeros: dict[int, Values] = {}

    def forget(self, rank: int) -> None:
        """Forget the edges to all lives of a neighbour."""
        for key in [key for key in self._edges if key[0].rank == rank]:
            del self._edges[key]

    def may_tell(self, to: Address, shard: int) -> bool:
        """Whether it is our turn: the neighbour has told as often as we have."""
        edge = self._edges.get((to, shard))
        return edge is None or edge.told <= edge.heard

    def tell(self, to: list[tuple[Address, float]], shard: int, values: Values) -> list[Told]:
        """Return what to tell each of some neighbours of a shard, where g is at most what stands beside them.

        Raises:
            Unencodable: for NaN and infinity among the values.
        """
        if not is_finite(values):
            raise Unencodable("NaN or infinity among the values")
        edges = [self._edge(address, shard, values) for address, _ in to]
        before = [edge.mine for edge in edges]  # alive all the time, so that none has another's id
        made: dict[tuple[int, int], tuple[ShardCopy, Values]] = {}
        out = []
        for edge, mine, (_, gain) in zip(edges, before, to, strict=True):
            key = edge.told, id(mine)
            if key not in made:
                made[key] = self._difference(values, mine, (shard, edge.told))
            snapshot, edge.mine = made[key]
            edge.told += 1
            edge.gain = gain
            out.append(Told(snapshot, None if edge.early is None else _complete(edge, *edge.early)))
        return out

    def check(self, parcel: Parcel) -> None:
        """Reject a difference that nobody honest sends: of a round after one that we have not told ours of."""
        edge = self._edges.get((parcel.origin, parcel.shard))
        if edge is not None and edge.heard > edge.told:
            raise Rejected(Reason.WINDOW, f"round {edge.heard}; ours is {edge.told}", parcel.origin.rank)

    def hear(self, parcel: Parcel, like: Values) -> Draw | None:
        """Take in what a neighbour tells, and return what its round moves if ours was told already.

        Args:
            parcel: the difference.
            like: our values of the shard.
        """
        edge = self._edge(parcel.origin, parcel.shard, like)
        edge.heard += 1
        if edge.heard > edge.told:
            edge.early = parcel.values, parcel.ask
            return None
        return _complete(edge, parcel.values, parcel.ask)

    def take_back(self, parcel: Parcel) -> Draw | None:
        """Drop the edge of a difference that will never be booked, and return what its round had moved, if it had."""
        edge = self._edges.pop((parcel.destination, parcel.shard), None)
        if edge is None or edge.heard < edge.told:
            return None
        return Draw(edge.told - 1, _drawn(edge))

    def _edge(self, address: Address, shard: int, like: Values) -> _Edge:
        edge = self._edges.get((address, shard))
        if edge is None:
            if shard not in self._zeros:
                wide = like.dtype if like.dtype.itemsize >= WIDE.itemsize else WIDE
                self._zeros[shard] = np.zeros(like.size, wide)
            zeros = self._zeros[shard]
            edge = self._edges[address, shard] = _Edge(zeros, zeros)
        return edge

    def _difference(self, values: Values, mine: Values, keys: tuple[int, ...]) -> tuple[ShardCopy, Values]:
        """Return the difference as it is sent, and the estimate with it."""
        with np.errstate(over="ignore"):
            apart = _within(values.astype(mine.dtype) - mine)
        # Without the rank among the keys: what is the same at both ends of an edge is told as the same.
        payload = self._codec.encode(narrowed(apart, values.dtype), keys=keys)
        carried = self._codec.decode(payload, values.size, values.dtype)
        return ShardCopy(carried, xxhash.xxh3_64_intdigest(payload.data), payload), _added(mine, carried)


def _complete(edge: _Edge, values: Values, gain: float) -> Draw:
    edge.early = None
    edge.theirs = _added(edge.theirs, values)
    edge.gain = min(edge.gain, gain)
    return Draw(edge.told - 1, _drawn(edge))


def _drawn(edge: _Edge) -> Values:
    with np.errstate(over="ignore"):
        amount: Values = (edge.theirs - edge.mine) * edge.mine.dtype.type(edge.gain)
    return amount


def _added(estimate: Values, values: Values) -> Values:
    with np.errstate(over="ignore"):
        return _within(estimate + values.astype(estimate.dtype))


def _within(values: Values) -> Values:
    """Return the values, none of which is NaN, at the end of the range where they are beyond; the same at both ends."""
    if is_finite(values):
        return values
    limit = largest(values.dtype)
    out: Values = np.clip(values, -limit, limit)
    return out
