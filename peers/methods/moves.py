"""Longer moves of the optimizer while some of a peer's mass is in flight.

The optimizer steps on z. In terms of the mass x = w z, a move u of z moves x by w u. So a peer with little mass moves
little of it, which is stable; the textbook rule (x moves by u, so z by u / w) diverges. But no peer trains mass in
flight: with o the weight that this peer sent and that is not answered, the swarm as a whole moves too little, by the
share o / (w + o). So the move of z is made (w + o) / w times as long, at most `LONGEST` times:

    x <- x + min(w + o, LONGEST w) u

Mass that has arrived is merged before the move (`gossip.events.Merge`), so it is part of w. An exception are parcels
that ask for an answer: their senders have just moved that mass. If nothing is in flight, because answers come within a
step, nothing is copied and nothing is multiplied.

Buffers, such as the statistics of batch norm, are no part of the move. They change during a step if the optimizer calls
a closure, and a variance that overshoots becomes negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

__all__ = ["LONGEST", "Moves"]

#: The largest factor of a move: the largest stable learning rate is smaller by this factor. Decision 12.
LONGEST = 1.25
#: A smaller correction is not worth a copy.
_WORTHWHILE = 0.01


class Moves:
    """The optimizer's moves of one replica, shard by shard."""

    def __init__(
        self,
        shards: int,
        shard: Callable[[int], torch.Tensor],
        stretch: Callable[[int], float],
        buffers: Sequence[torch.Tensor] = (),
    ) -> None:
        """Watch the moves.

        Args:
            shards: the number of shards.
            shard: returns the values of a shard.
            stretch: returns the factor of the move of a shard: (w + o) / w.
            buffers: tensors in the shards that no optimizer moves.
        """
        self._shards = shards
        self._shard = shard
        self._stretch = stretch
        self._buffers = buffers
        self._before: dict[int, tuple[float, torch.Tensor]] = {}

    def begin(self) -> None:
        """Remember the values of the shards whose move has to be longer."""
        self._before = {}
        for shard in range(self._shards):
            factor = min(self._stretch(shard), LONGEST)
            if factor > 1 + _WORTHWHILE:
                self._before[shard] = factor, self._shard(shard).detach().clone()

    def end(self) -> None:
        """Make the moves longer."""
        if not self._before:
            return
        with torch.no_grad():
            kept = [buffer.clone() for buffer in self._buffers]
            for shard, (factor, before) in self._before.items():
                values = self._shard(shard)
                # before + factor (values - before), in place.
                torch.lerp(before, values, factor, out=values)
            for buffer, values in zip(self._buffers, kept, strict=True):
                buffer.copy_(values)
        self._before = {}
