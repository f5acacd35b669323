"""A model evaluated twice: as this peer has it, and as the average of all peers has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from peers.model.replica import Replica

__all__ = ["Evaluation", "evaluate_both"]


class Evaluation(NamedTuple):
    """What a function of the model returned for this peer's own replica and for the average of all."""

    own: Any
    average: Any


def evaluate_both(
    function: Callable[[], Any], replica: Replica, agree: Callable[[Callable[[], None]], object], *, keep_average: bool
) -> Evaluation:
    """Call the function for the replica's own values and for the average; bring the own values back.

    Args:
        function: evaluates the model.
        replica: the values of the model.
        agree: brings the average of all into the replica, and calls its argument while all agree.
        keep_average: leave the average in the replica, because its own values are the average of all.
    """
    own = function()
    kept = replica.values()
    agreed: list[torch.Tensor] = []
    try:
        agree(lambda: agreed.extend(replica.values()))
        if agreed:
            replica.restore(agreed)
            replica.unite()
        return Evaluation(own, function())
    finally:
        if not keep_average:
            replica.restore(kept)
            replica.unite()
