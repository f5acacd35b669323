"""One peer that averages by `allreduce`, as `benchmarks.engine_worker` runs it: core, driver and ZeroMQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import topologies
from benchmarks.engine_gossip import PATIENCE, Gossip
from benchmarks.engine_values import Floats
from gossip.policies import parse
from gossip.presets import preset

__all__ = ["Reducing"]


class Reducing(Gossip):
    """A peer of n; what it averages is a vector, not its mass."""

    def __init__(self, rank: int, n: int, *, shared: bool, plan: str = "auto") -> None:
        super().__init__(rank, n, encrypted=False, shared=shared)
        self._plan = plan

    def join(self, addresses: Sequence[Any], values: Floats) -> None:
        """Connect to everybody, and take part."""
        settings = preset("loopback").settings
        policy = parse(f"allreduce:plan={self._plan}")
        self.start(addresses, values, policy, settings, lambda n: topologies.parse("one-peer-exponential", n))
        self._values = values
        assert self._driver is not None
        self._driver.synchronize(0, 1, lambda: None)

    def step(self) -> None:
        """Average once."""
        assert self._driver is not None
        self._driver.reduce(self._values, lambda: None)

    def check(self, values: Floats, steps: int) -> None:
        """Raise unless the values are the mean of all, which they are after one step."""
        super().check(values, max(steps, int(PATIENCE)))
