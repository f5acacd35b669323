"""How a peer carries its farewell out: it tells everybody, then hands its mass over shard by shard."""

from __future__ import annotations

from collections.abc import Sequence

from gossip.books.mass import ShardCopy
from gossip.core.farewell import Farewell
from gossip.exchange.sender import Sender
from gossip.values.blocks import inspect, shift
from gossip.wire.messages import Address, Bye

__all__ = ["Leaving"]


class Leaving:
    """What a peer that leaves does; nothing, as long as it stays."""

    def __init__(self, sender: Sender) -> None:
        self._out = sender
        self._state = sender.state
        self._books = sender.books
        self._farewell: Farewell | None = None

    @property
    def deadline(self) -> float | None:
        """When something is to be said or tried again."""
        return None if self._farewell is None else self._farewell.deadline

    def begin(self) -> None:
        """Begin to leave, unless that has begun."""
        if self._farewell is None:
            self._begin_anew()

    def _begin_anew(self) -> None:
        state = self._state
        others = [state.view.address(rank) for rank in state.view.members if rank != state.me.rank]
        # Peers that leave as well: mass of theirs may be in flight to us.
        everybody = [*others, *state.view.departing()]
        self._farewell = Farewell(everybody, state.mass.layout.shards, state.settings.resend_first)
        state.leaving = True

    def new_life(self) -> None:
        """Begin anew, if the life that was leaving is over."""
        if self._farewell is not None:
            self._begin_anew()

    def end(self) -> None:
        """Have nothing left to do."""
        self._farewell = None
        self._state.leaving = False

    def tell(self, now: float, *, hands_over: bool = True) -> None:
        """Say goodbye to all that have not heard it, or not answered."""
        for address in [] if self._farewell is None else self._farewell.to_tell(now):
            self._out.outlet.send(Bye(self._state.me, address, hands_over=hands_over))

    def settle(self, address: Address) -> None:
        """Take in that a peer has nothing in flight to us."""
        if self._farewell is not None:
            self._farewell.settle(address)

    def refused(self, shard: int) -> None:
        """Take in that an heir sent a shard back."""
        if self._farewell is not None:
            self._farewell.refused(shard)

    def forget(self, rank: int) -> None:
        """Wait no more for a peer that is gone itself."""
        if self._farewell is not None:
            self._farewell.forget(rank)

    def go_on(self, now: float) -> bool:
        """Do what can be done now; return whether nothing is left to do."""
        farewell, state = self._farewell, self._state
        if farewell is None:
            return False
        self.tell(now)
        if not farewell.settled:
            return False
        heirs = [state.view.address(rank) for rank in state.view.members if rank != state.me.rank]
        left = [shard for shard in range(state.mass.layout.shards) if self._has_to_give(farewell, shard)]
        for shard in left if heirs else ():
            if not self._books.outbox.carries(shard):
                self._bequeath(farewell, shard, heirs, now)
        wanting = heirs and any(self._has_to_give(farewell, shard) for shard in left)
        return not len(self._books.outbox) and not wanting

    def _has_to_give(self, farewell: Farewell, shard: int) -> bool:
        held = self._state.mass.weights[shard] > 0 and shard not in farewell.worthless
        return held or self._books.inbox.weight(shard) > 0

    def _bequeath(self, farewell: Farewell, shard: int, heirs: Sequence[Address], now: float) -> None:
        """Offer mass of a shard to one of those who stay: what we hold, then what we have not merged, pile by pile."""
        out, inbox, mass = self._out, self._books.inbox, self._state.mass
        heir = farewell.heir(shard, heirs, now)
        if heir is None or self._state.view.fenced(heir) or not out.fits(heir, shard):
            return
        weight, turn = mass.weights[shard], self._state.turns[shard]
        if weight > 0 and shard not in farewell.worthless:
            snapshot = out.snapshot(shard, whole=True)  # what rounding took off would stay with nobody
            if snapshot is not None and (moves := inbox.take_moves(shard)) is not None:
                # There will be no others: nothing of the shard is in flight, to us or from us.
                shift(snapshot.values, moves.values, 1 / weight)
                seal, finite = inspect(snapshot.values)
                snapshot = ShardCopy(snapshot.values, seal) if finite else None
            if snapshot is None:
                farewell.worthless.add(shard)
            else:
                mass.weights[shard] = 0.0
                out.post(heir, shard, turn, weight, snapshot, 0.0, now)
        elif (pile := inbox.take(shard)) is not None:
            out.post(heir, shard, turn, pile.weight, ShardCopy(pile.values, inspect(pile.values).seal), 0.0, now)
        if not self._has_to_give(farewell, shard):
            farewell.given(shard)
