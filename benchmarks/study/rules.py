"""The update rules that the study compares; only the capped one is the product's.

With z the estimate, w the weight that a peer holds and u the optimizer's move: z moves by u times

    capped      min((w + o) / w, 1.25), where o is the peer's mass in flight: the rule of `peers.methods.moves`
    z-step      1: x moves by w u
    textbook    1 / w: x moves by u
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from peers.methods.moves import Moves
from peers.model.replica import Replica
from peers.steps.gossip_steps import GossipSteps

__all__ = ["RULES", "moves"]

#: Nearer to 1 than this, a factor is 1.
_NEAR = 1e-9


class FactorMoves(Moves):
    """Moves that are made longer or shorter by a factor for each shard."""

    def __init__(self, shards: int, shard: Callable[[int], torch.Tensor], factor: Callable[[int], float]) -> None:
        super().__init__(shards, shard, factor)
        self._factor = factor

    def begin(self) -> None:
        """Remember the values of the shards whose move will have another length."""
        factors = {shard: self._factor(shard) for shard in range(self._shards)}
        self._before = {
            shard: (factor, self._shard(shard).detach().clone())
            for shard, factor in factors.items()
            if abs(factor - 1) > _NEAR
        }


def _factor(rule: str, steps: GossipSteps) -> Callable[[int], float]:
    return (lambda shard: 1 / steps.weight(shard)) if rule == "textbook" else (lambda _: 1.0)


#: In the order of the tables.
RULES = ("textbook", "z-step", "capped")


def moves(rule: str, steps: GossipSteps, replica: Replica) -> Moves:
    """Return what makes the optimizer's moves as long as the rule says."""
    if rule == "capped":
        return Moves(replica.layout.shards, replica.shard, steps.stretch)
    return FactorMoves(replica.layout.shards, replica.shard, _factor(rule, steps))
