"""``momentum=inferred``: first moments that are mixed without being sent, read off what an exchange does to the values.

A peer's first moment m keeps the noise of its own batches for 1 / (1 - beta1) steps, so its replica moves away from the
others in one direction for as long. Mixing first moments too (``momentum=mixed``) prevents it for twice the bytes. But
the values already tell what the neighbours' moments are. Adam moves z by -rate m / s, with s = sqrt(v) + eps, and m
hardly changes within a few steps. If T steps pass until a move has reached everybody, two peers are apart by about T
moves, and an exchange that moves z by d would have changed m by

    m <- m - (1 / T) (s / rate) d

T is log2 n for graphs that reach everybody in that number of turns, and more in proportion if a shard is not exchanged
in every step. With n = 2 it is exactly what mixing does.

It is stable for every symmetric graph. With e the distance of a mode, p its part of m, both in moves, l >= 0 its
eigenvalue and c <= 1 the gain, a step is e <- l (e - p), p <- beta1 (p + c (1 - l) (e - p)). The determinant is
beta1 l, and the characteristic polynomial is positive at 1 and -1, so both eigenvalues are within the unit circle.

It holds only where an exchange compares the same moment: mass that is a step late is behind by a common move, and would
slow the momentum of everybody. So only shards count that got as much weight as they gave. Peers that are far apart for
another reason, as after a partition, would tell too much: so no m becomes larger than s by it, which bounds the move by
the rate. What a codec rounds is noise in d, and is small beside it only where moves are large: so it is not the default
with a codec. It holds for Adam and AdamW, whose move is the formula above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any

import torch

from peers.methods.method import Method
from peers.model.replica import Replica
from peers.model.spread import local_part
from peers.model.trained import Trained

__all__ = ["InferredMomentum", "is_inferable"]

_KINDS = (torch.optim.Adam, torch.optim.AdamW)
_EXACT = (torch.float32, torch.float64)


def is_inferable(optimizer: torch.optim.Optimizer) -> bool:
    """Whether moves of the optimizer tell its first moments."""
    return isinstance(optimizer, _KINDS) and not any(group["amsgrad"] for group in optimizer.param_groups)


class InferredMomentum(Method):
    """The first moments of one replica. Memory: two more vectors of the size of the parameters."""

    def __init__(self, replica: Replica, optimizer: torch.optim.Optimizer) -> None:
        self._values = replica.vectors
        self._replica = replica
        self._optimizer = optimizer
        self._trained = Trained(replica, optimizer)
        #: The values before the exchange, and s / rate, with Adam's correction for the first steps.
        self._before = [torch.zeros_like(one) for one in self._values]
        self._scale = [torch.zeros_like(one) for one in self._values]
        #: The parameters that moved in this step, and their rates.
        self._moved: dict[torch.Tensor, Any] = {}
        self._peers = 1.0

    def evaluated(self, peers: Callable[[], float]) -> None:
        """Note how many peers there are."""
        self._peers = peers()

    @torch.no_grad()
    def end(self) -> None:
        """Note the values, and how far they move by how much of a first moment."""
        self._moved = {
            parameter: group["lr"]
            for group in self._optimizer.param_groups
            if float(group["lr"])
            for parameter in group["params"]
            if self._note(parameter, group)
        }
        torch._foreach_copy_(self._before, self._values)

    def _note(self, parameter: torch.Tensor, group: dict[str, Any]) -> bool:
        """Note the scale of a parameter that has just moved; return whether there is one."""
        state = self._optimizer.state.get(parameter, {})
        if parameter.grad is None or "exp_avg_sq" not in state or parameter.dtype not in _EXACT:
            return False
        if self._replica.place(parameter) is None:
            return False
        step = state["step"]
        if step.device.type == "cpu":  # elsewhere nobody waits for the number
            step = step.item()
        first, second = (1 - float(beta) ** step for beta in group["betas"])
        scale = self._replica.view(self._scale, parameter)
        torch.sqrt(local_part(state["exp_avg_sq"]) / second, out=scale)
        scale.add_(group["eps"]).mul_(first / group["lr"])
        return True

    @torch.no_grad()
    def balanced(self, shards: Container[int], pace: float) -> None:
        """Mix the first moments of shards that got as much as they gave."""
        gain = min(1.0, pace / math.log2(max(2.0, self._peers)))
        # The change of the values, in moves, takes the place of the values before.
        for before, values, scale in zip(self._before, self._values, self._scale, strict=True):
            torch.sub(values, before, out=before).mul_(scale)
        for segment in self._trained.segments():
            if segment.shard not in shards:
                segment.of(self._before).zero_()
        for parameter, rate in self._moved.items():
            change, scale = (self._replica.view(one, parameter) for one in (self._before, self._scale))
            mean = local_part(self._optimizer.state[parameter]["exp_avg"])
            bound = torch.maximum(mean.abs(), scale * rate)
            mean.sub_(change, alpha=gain).clamp_(-bound, bound)
        self._moved = {}
