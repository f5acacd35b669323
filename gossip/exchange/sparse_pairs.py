"""Pairwise averaging of some coordinates only: what is offered, what is moved, and what is known of both.

A weight belongs to a whole shard, so some of a shard's values cannot be pushed as mass. They can be *moved*: what one
end adds to x the other takes off, and the weights stay where they are.

    1. At its turn i offers j some values of a shard, with its weight (`Proposal`). An offer is no mass: it may be lost.
    2. At its next boundary j calculates for those places  d = 2 f w_i w_j / (w_i + w_j) (z_i - z_j),  f being i's
       fraction, rounds d, adds it to its x, and sends -d to i: a parcel of weight 0, which is mass like any
       other and travels by the same rules.
    3. i adds -d to its x. With equal weights and f = 1/2 both then hold the mean.

Whatever is lost, late or refused, the sum of x is what it was, and nobody waits. What is rounded off d is not
moved, so it still shows next time.

*Which places.* Those whose values are furthest from what they were when last exchanged. That alone would not see two
halves of a swarm that each agree within themselves, so a quarter of the places is drawn by chance, all in one stretch.

*Promises.* Whoever offers a value promises to give up f of it, whatever becomes of it until the answer comes. Were half
of it given up to somebody else meanwhile nothing would be left of it, and neighbours that offer to each other in
the same moment would merely swap. So a place is in one open offer at a time, and what is moved there for others in the
meantime is at most 1/4, then 1/8, 1/16, ...: together less than half. Then every z stays a mean of what was there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xxhash

from gossip.books.mass import ShardCopy
from gossip.codecs.codec import WIDE, Unencodable
from gossip.codecs.pair_coding import PairCoding
from gossip.codecs.places import Places
from gossip.codecs.topk import Sparse, places_of_largest
from gossip.codecs.walk import Rows, saturated
from gossip.values.blocks import Values, is_finite
from gossip.wire.messages import Address, Parcel, Proposal
from topologies.draws import below

__all__ = ["Pairs"]

#: One place in this number is drawn by chance.
_DRAWN = 4
#: No more than this of a difference is moved: with more, both ends would be further apart than they need be.
_MOST = 0.5


@dataclass
class _Open:
    """An offer of ours that was not answered yet."""

    turn: int
    told: Sparse
    until: float
    #: How often something was moved at these places since.
    moves: int = 0


class Pairs:
    """What one peer knows about its exchanges of some coordinates."""

    def __init__(self, coding: PairCoding, patience: float) -> None:
        """Begin.

        Args:
            coding: how offers and moves are written.
            patience: seconds after which an offer is given up.
        """
        self.coding = coding
        self._patience = patience
        #: What each shard's values were when they were last exchanged; made when it is first asked for.
        self._last: dict[int, Values] = {}
        self.new_life()

    def new_life(self) -> None:
        """Forget all offers, ours and others'."""
        #: By neighbour and shard.
        self._open: dict[tuple[Address, int], _Open] = {}
        #: What others offer, by rank and shard; a later offer takes the place of an earlier one.
        self._heard: dict[tuple[int, int], Proposal] = {}
        #: The last offer of each neighbour and shard that was heard: incarnation and turn. Older ones are copies.
        self._latest: dict[tuple[int, int], tuple[int, int]] = {}

    # Offering

    def offer(
        self,
        me: Address,
        to: Address,
        turn: int,
        shard: int,
        weight: float,
        fraction: float,
        values: Values,
        now: float,
    ) -> Proposal | None:
        """Return what to offer a neighbour; None: nothing, as long as other offers are open.

        Raises:
            Unencodable: for NaN and infinity among the values.
        """
        if not is_finite(values):
            raise Unencodable("NaN or infinity among the values")
        self._give_up(now)
        k = self.coding.told.kept(values.size)
        busy = [one.told.places for (_, other), one in self._open.items() if other == shard]
        if (to, shard) in self._open or sum(places.size for places in busy) + k > values.size:
            return None
        places = self._choose(shard, values, k, busy, (me.rank, shard, turn))
        payload = self.coding.told.encode_some(Sparse(places, values[places]), values.size)
        told = self.coding.told.decode_some(payload, values.size, values.dtype)
        self._open[to, shard] = _Open(turn, told, now + self._patience)
        return Proposal(me, to, turn, shard, weight, min(_MOST, fraction), told, payload)

    def _choose(self, shard: int, values: Values, k: int, busy: list[Places], keys: tuple[int, ...]) -> Places:
        """Return the places to offer, increasing."""
        change: Rows = np.empty(values.size, WIDE)
        with np.errstate(over="ignore"):
            saturated(values - self._of(shard, values), change)
        np.abs(change, out=change)
        drawn = max(1, k // _DRAWN)
        start = below(values.size, *keys)
        change[start : start + drawn] = np.inf
        change[: max(0, start + drawn - values.size)] = np.inf
        for places in busy:
            change[places] = -1
        return places_of_largest(change, k)

    def answered(self, parcel: Parcel) -> None:
        """Take in that a neighbour moved something, for an offer of ours."""
        one = self._open.get((parcel.origin, parcel.shard))
        if one is not None and one.turn == parcel.turn:
            del self._open[parcel.origin, parcel.shard]
            # As it was told: what was rounded off still shows.
            self._last[parcel.shard][one.told.places] = one.told.values

    def _give_up(self, now: float) -> None:
        for key in [key for key, one in self._open.items() if one.until <= now]:
            del self._open[key]

    # Moving

    def hear(self, proposal: Proposal) -> None:
        """Keep an offer for the next boundary, unless it is a copy or older than one that was heard."""
        key, said = (proposal.origin.rank, proposal.shard), (proposal.origin.incarnation, proposal.turn)
        if said > self._latest.get(key, (-1, -1)):
            self._latest[key] = said
            self._heard[key] = proposal

    def heard(self, shard: int) -> list[Proposal]:
        """Return what others offer of a shard, oldest first."""
        return [one for (_, other), one in self._heard.items() if other == shard]

    def drop(self, proposal: Proposal) -> None:
        """Forget another's offer: it was answered, or never will be."""
        self._heard.pop((proposal.origin.rank, proposal.shard), None)

    def move(self, proposal: Proposal, values: Values, weight: float, now: float) -> ShardCopy:
        """Return -d, which goes to the one that offered; all of the shard, 0 where nothing moves.

        Args:
            proposal: the offer.
            values: ours, of the shard.
            weight: ours, of the shard.
            now: the time.

        Raises:
            Unencodable: for NaN and infinity among our values, or where theirs are too far away to say how far.
        """
        self._give_up(now)
        (places, theirs), shard = proposal.told, proposal.shard
        ours = values[places]
        wide = np.promote_types(WIDE, values.dtype) if values.dtype.kind == "f" else WIDE
        both = 2 * weight * proposal.weight / (weight + proposal.weight)
        with np.errstate(over="ignore", invalid="ignore"):
            moved = (ours.astype(wide) - theirs.astype(wide)) * (both * self._fractions(proposal)).astype(wide)
            payload = self.coding.moved.encode_some(Sparse(places, moved.astype(values.dtype)), values.size)
        self._of(shard, values)[places] = ours
        whole = self.coding.moved.decode(payload, values.size, values.dtype)
        return ShardCopy(whole, xxhash.xxh3_64_intdigest(payload.data), payload)

    def _fractions(self, proposal: Proposal) -> Values:
        """Return what may be moved at each place: what was asked for, or less where we have promised it already."""
        out: Values = np.full(proposal.told.places.size, proposal.fraction)
        for (_, shard), one in self._open.items():
            if shard == proposal.shard:
                promised = np.isin(proposal.told.places, one.told.places, assume_unique=True)
                if promised.any():
                    one.moves += 1
                    out[promised] = min(proposal.fraction, _MOST / 2**one.moves)
        return out

    def _of(self, shard: int, values: Values) -> Values:
        found = self._last.get(shard)
        if found is None:
            found = self._last[shard] = values.copy()
        return found
