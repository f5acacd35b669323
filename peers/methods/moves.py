"""How far the optimizer's move goes when a peer does not hold all the mass that it answers for.

The optimizer steps on z. In terms of the mass x = w z, a move u of z moves x by w u: a peer that holds little mass
moves little of it, which is stable, where the textbook rule (x moves by u, so z by u / w) diverges. But mass that is on
its way is trained by nobody: with o the own weight that was sent and is not answered, the swarm as a whole moves less
than it should by the share o / (w + o). So the move of z is made (w + o) / w times as long, at most `LONGEST` times:

    x <- x + min(w + o, LONGEST w) u

Mass that has arrived is merged before the move (`gossip.events.Merge`), so it is part of w, but for what asks for an
answer, which its sender has just moved. Where nothing is on its way, as whenever answers come within a step, nothing is
copied and nothing is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["LONGEST", "Moves"]

#: No move is made longer than this many times: the largest stable learning rate is smaller by as much. Decision 12.
LONGEST = 1.25
#: A smaller correction is not worth a copy.
_WORTHWHILE = 0.01


class Moves:
    """The optimizer's moves of one replica, shard by shard."""

    def __init__(self, shards: int, shard: Callable[[int], torch.Tensor], stretch: Callable[[int], float]) -> None:
        """Watch the moves.

        Args:
            shards: how many there are.
            shard: returns the values of a shard.
            stretch: returns how much longer the move of a shard should be: (w + o) / w.
        """
        self._shards = shards
        self._shard = shard
        self._stretch = stretch
        self._before: dict[int, tuple[float, torch.Tensor]] = {}

    def begin(self) -> None:
        """Remember the values of the shards whose move will have to be longer."""
        self._before = {}
        for shard in range(self._shards):
            factor = min(self._stretch(shard), LONGEST)
            if factor > 1 + _WORTHWHILE:
                self._before[shard] = factor, self._shard(shard).detach().clone()

    def end(self) -> None:
        """Make the moves longer."""
        with torch.no_grad():
            for shard, (factor, before) in self._before.items():
                values = self._shard(shard)
                # before + factor (values - before), in place.
                torch.lerp(before, values, factor, out=values)
        self._before = {}
