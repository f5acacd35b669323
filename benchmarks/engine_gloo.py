"""One process of `torch.distributed.all_reduce` with gloo, as `benchmarks.engine_worker` runs it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from benchmarks.engine_values import Floats, check

__all__ = ["Gloo"]

_PATIENCE = timedelta(seconds=60)


class Gloo:
    """A process of n; the sum, without the division by n, is all that is asked of it."""

    def __init__(self, rank: int, n: int) -> None:
        self._rank = rank
        self._n = n
        self._store: TCPStore | None = None
        if rank == 0:
            self._store = TCPStore("127.0.0.1", 0, n, True, _PATIENCE, wait_for_workers=False)
        torch.set_num_threads(1)

    @property
    def address(self) -> Any:
        """What the others have to know."""
        return self._store.port if self._store is not None else None

    def join(self, addresses: Sequence[Any], values: Floats) -> None:
        """Connect to everybody."""
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        if self._store is None:
            self._store = TCPStore("127.0.0.1", addresses[0], self._n, False, _PATIENCE)
        dist.init_process_group("gloo", store=self._store, rank=self._rank, world_size=self._n, timeout=_PATIENCE)
        self._tensor = torch.from_numpy(values)

    def step(self) -> None:
        """Sum once."""
        dist.all_reduce(self._tensor)

    def sent(self) -> int | None:
        """Return None: gloo does not count."""
        return None

    def wire(self) -> int | None:
        """Return None, as above."""
        return None

    def others(self) -> int:
        """Return 0: no memory of others is mapped."""
        return 0

    def check(self, values: Floats, steps: int) -> None:
        """Raise unless the values are n times the mean, and n times more with each further step."""
        check(values, (self._n - 1) / 2, float(self._n) ** steps)

    def close(self) -> None:
        """End the group."""
        if dist.is_initialized():
            dist.destroy_process_group()
