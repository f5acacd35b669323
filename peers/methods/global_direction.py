"""The swarm's direction, blended into the moves between two exchanges: for ssd, whose module has the derivation.

The direction d is not sent but observed. From one exchange to the next the mixed z changes by the swarm's moves. Let
``change`` be that difference and ``spent`` the sum of the learning rates of the steps in between. Then the swarm moved
by change / spent per unit of rate, and with the present rate a step of the swarm is

    d = change rate / spent

which is change / k as long as the rate is constant. Both are means over the last few exchanges, since a single change
is partly due to the neighbour's deviation. If an optimizer has several groups, each has its own rate. Until a
difference is known, the optimizer's move is not changed. A newcomer begins like that too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from typing import Any

import torch

from peers.methods.method import Method
from peers.model.replica import Replica
from peers.model.trained import Segment, Trained

__all__ = ["GlobalDirection"]

#: The weight of the last exchange in the means: about as many exchanges count as most topologies need to mix.
_FRESH = 0.25
#: By shard and group of the optimizer.
_Rates = dict[tuple[int, int], float]


class GlobalDirection(Method):
    """The direction of one replica's swarm. Memory: three more vectors of the size of the model."""

    def __init__(self, blend: float, replica: Replica, optimizer: torch.optim.Optimizer) -> None:
        self._blend = blend
        self._values = replica.vectors
        self._trained = Trained(replica, optimizer)
        #: The values after the last exchange, and their mean change from one exchange to the next.
        self._last = [one.clone() for one in self._values]
        self._change = [torch.zeros_like(one) for one in self._values]
        #: The sum of the rates since the last exchange, and its mean from one exchange to the next.
        self._since: _Rates = defaultdict(float)
        self._spent: _Rates = {}
        self._before: list[tuple[Segment, float, torch.Tensor]] = []

    def start(self) -> None:
        """Treat the present values as those after an exchange."""
        if not self.restored:
            torch._foreach_copy_(self._last, self._values)

    def begin(self, exchanges: bool) -> None:
        """Remember the values that have a direction, if the step is a local one."""
        self._before = []
        rates = self._trained.rates()
        for segment in self._trained.segments():
            key = segment.shard, segment.group
            if not exchanges and (spent := self._spent.get(key, 0.0)) > 0:
                now = segment.of(self._values).detach().clone()
                self._before.append((segment, rates[segment.group] / spent, now))

    @torch.no_grad()
    def end(self) -> None:
        """Blend the direction in."""
        for segment, factor, before in self._before:
            z = segment.of(self._values)
            torch.lerp(before, z, 1 - self._blend, out=z)
            z.add_(segment.of(self._change), alpha=self._blend * factor)
        self._before = []
        rates = self._trained.rates()
        for key in {(one.shard, one.group) for one in self._trained.segments()}:
            self._since[key] += rates[key[1]]

    @torch.no_grad()
    def exchanged(self, shards: Container[int]) -> None:
        """Observe the swarm's move since the last exchange."""
        for segment in self._trained.segments(shards):
            z, last, change = (segment.of(one) for one in (self._values, self._last, self._change))
            change.mul_(1 - _FRESH).add_(z, alpha=_FRESH).sub_(last, alpha=_FRESH)
            last.copy_(z)
        for key in {(one.shard, one.group) for one in self._trained.segments(shards)}:
            self._spent[key] = (1 - _FRESH) * self._spent.get(key, 0.0) + _FRESH * self._since.pop(key, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Return the mean change, the values after the last exchange, and the rates of both."""
        rates = {"since": dict(self._since), "spent": dict(self._spent)}
        return {"last": self._last, "change": self._change, **rates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        torch._foreach_copy_(self._last, state["last"])
        torch._foreach_copy_(self._change, state["change"])
        self._since = defaultdict(float, state["since"])
        self._spent = dict(state["spent"])
