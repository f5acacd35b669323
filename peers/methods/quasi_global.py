"""``momentum=quasi-global``: the momentum of the swarm's moves, not of the peer's own gradients.

Lin, Karimireddy, Stich, Jaggi, "Quasi-Global Momentum: Accelerating Decentralized Deep Learning on Heterogeneous Data",
2021, arXiv:2102.04761 (QG-DSGDm). If the peers' data differ, a buffer of a peer's own gradients pulls its replica away
from the others. So the step is taken as usual, m <- beta m + g, z <- z - rate m, but the next step does not start from
that m. From z after the last exchange and z after this one:

    d = (z_last - z) / (sum of the rates in between)        m^ <- beta m^ + (1 - beta) d        m <- m^

(The paper has a separate factor, mu, for the beta of m^; here both are the optimizer's momentum.) If peers agree and
gradients are constant, then d = m and m^ = m: this is the usual momentum. The mixing averages the differences between
peers out of d, without further traffic. With local steps the buffer works as usual in between, and is set to m^ at each
exchange.

A newcomer begins with m^ = 0, like the first peers: its buffer fills up in 1 / (1 - beta) exchanges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from typing import Any

import torch

from peers.methods.method import Method
from peers.methods.momentum_buffers import Buffers
from peers.model.replica import Replica
from peers.model.spread import spread_like
from peers.model.trained import Trained, like

__all__ = ["QuasiGlobal"]


class QuasiGlobal(Method):
    """The momentum of one replica's swarm. Memory: two more vectors of the size of the model."""

    def __init__(self, replica: Replica, optimizer: torch.optim.Optimizer) -> None:
        self._values = replica.vectors
        self._trained = Trained(replica, optimizer)
        #: The buffers that the optimizer uses, in the layout of the values.
        self._own = [torch.zeros_like(one) for one in self._values]
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        views = {one: replica.view(self._own, one) for one in parameters if replica.place(one) is not None}
        self._buffers = Buffers(optimizer, {one: spread_like(one, view) for one, view in views.items()})
        #: The values after the last exchange, and the momentum then.
        self._last = [one.clone() for one in self._values]
        self._momentum = like(self._values)
        #: The rates of all steps since then, by shard and group.
        self._since: dict[tuple[int, int], float] = defaultdict(float)

    def start(self) -> None:
        """Treat the present values as those after an exchange, and loaded buffers, if any, as the swarm's."""
        self._buffers.bind()
        if not self.restored:
            torch._foreach_copy_(self._last, self._values)
            torch._foreach_copy_(self._momentum, self._own)

    def begin(self, exchanges: bool) -> None:  # noqa: ARG002
        """Make the optimizer use the buffers of this method."""
        self._buffers.bind()

    def end(self) -> None:
        """Add up the learning rates."""
        rates = self._trained.rates()
        for key in {(one.shard, one.group) for one in self._trained.segments()}:
            self._since[key] += rates[key[1]]

    @torch.no_grad()
    def exchanged(self, shards: Container[int]) -> None:
        """Set the momentum to the swarm's."""
        for segment in self._trained.segments(shards):
            rate = self._since[segment.shard, segment.group]
            if rate > 0:  # otherwise no peer moved
                group = self._trained.group(segment)
                z, last, momentum = (segment.of(one) for one in (self._values, self._last, self._momentum))
                beta, sign = float(group["momentum"]), -1.0 if group["maximize"] else 1.0
                momentum.mul_(beta).add_(last.to(momentum.dtype) - z, alpha=sign * (1 - beta) / rate)
                segment.of(self._own).copy_(momentum)
                last.copy_(z)
        for key in {(one.shard, one.group) for one in self._trained.segments(shards)}:
            self._since.pop(key, None)

    def state_dict(self) -> dict[str, Any]:
        """Return the momentum, the values after the last exchange, and the rates since then."""
        return {"last": self._last, "momentum": self._momentum, "since": dict(self._since)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`; the optimizer loads the buffers."""
        torch._foreach_copy_(self._last, state["last"])
        torch._foreach_copy_(self._momentum, state["momentum"])
        self._since = defaultdict(float, state["since"])
