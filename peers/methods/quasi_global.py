"""``momentum=quasi-global``: the momentum of what the swarm did, not of one's own gradients.

Lin, Karimireddy, Stich, Jaggi, "Quasi-Global Momentum: Accelerating Decentralized Deep Learning on Heterogeneous Data",
2021, arXiv:2102.04761 (QG-DSGDm). Where peers' data differ, a buffer of one's own gradients pulls away from the others
for as long as it remembers. So the step is taken as always, m <- beta m + g, z <- z - rate m, but the next one
does not start from that m. From z after the last exchange and z after this one:

    d = (z_last - z) / (sum of the rates in between)        m^ <- beta m^ + (1 - beta) d        m <- m^

(The paper has a factor of its own, mu, for the beta of m^; here they are one, the optimizer's momentum.)
If peers agree and gradients are steady, d is m and m^ is m: it is the momentum that it was. What peers do not have in
common is averaged out of d by the mixing, without any further traffic. With local steps the buffer runs as usual in
between, and is set to m^ at each exchange.

A newcomer begins with m^ = 0, as the first peers did: its buffer fills up in 1 / (1 - beta) exchanges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from typing import Any

import torch

from peers.methods.method import Method
from peers.methods.momentum_buffers import Buffers
from peers.model.replica import Replica
from peers.model.trained import Trained, like

__all__ = ["QuasiGlobal"]


class QuasiGlobal(Method):
    """The momentum of one replica's swarm. Memory: two more vectors of the size of the model."""

    def __init__(self, replica: Replica, optimizer: torch.optim.Optimizer) -> None:
        self._values = replica.vectors
        self._trained = Trained(replica, optimizer)
        #: What the optimizer uses, laid out as the values are.
        self._own = [torch.zeros_like(one) for one in self._values]
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        views = {one: replica.view(self._own, one) for one in parameters if replica.place(one) is not None}
        self._buffers = Buffers(optimizer, views)
        #: The values after the last exchange, and the momentum then.
        self._last = [one.clone() for one in self._values]
        self._momentum = like(self._values)
        #: The rates of all steps since then, by shard and group.
        self._since: dict[tuple[int, int], float] = defaultdict(float)

    def start(self) -> None:
        """Take the values for those of an exchange, and the buffers that were loaded, if any, for the swarm's."""
        self._buffers.bind()
        if not self.restored:
            torch._foreach_copy_(self._last, self._values)
            torch._foreach_copy_(self._momentum, self._own)

    def begin(self, exchanges: bool) -> None:  # noqa: ARG002
        """See to it that the optimizer uses the buffers that are set here."""
        self._buffers.bind()

    def end(self) -> None:
        """Count the rates."""
        rates = self._trained.rates()
        for key in {(one.shard, one.group) for one in self._trained.segments()}:
            self._since[key] += rates[key[1]]

    @torch.no_grad()
    def exchanged(self, shards: Container[int]) -> None:
        """Set the momentum to the swarm's."""
        for segment in self._trained.segments(shards):
            rate = self._since[segment.shard, segment.group]
            if rate > 0:  # otherwise nobody moved
                group = self._trained.group(segment)
                z, last, momentum = (segment.of(one) for one in (self._values, self._last, self._momentum))
                beta, sign = float(group["momentum"]), -1.0 if group["maximize"] else 1.0
                momentum.mul_(beta).add_(last.to(momentum.dtype) - z, alpha=sign * (1 - beta) / rate)
                segment.of(self._own).copy_(momentum)
                last.copy_(z)
        for key in {(one.shard, one.group) for one in self._trained.segments(shards)}:
            self._since.pop(key, None)

    def state_dict(self) -> dict[str, Any]:
        """Return the momentum, what the next difference is to, and the rates since."""
        return {"last": self._last, "momentum": self._momentum, "since": dict(self._since)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; the buffers are the optimizer's to load."""
        torch._foreach_copy_(self._last, state["last"])
        torch._foreach_copy_(self._momentum, state["momentum"])
        self._since = defaultdict(float, state["since"])
