"""Workers of a data loader and the request to stop: they serve until the peer that they load for has ended.

A scheduler sends SIGTERM, and a launcher SIGINT, to all processes of a peer. A worker that died of it would take its
batch along, and torch would raise an error in the peer, in the middle of a step. But the peer ends at a step boundary,
for which it may need that very batch.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

__all__ = ["ServingWorker"]


@dataclass(frozen=True)
class ServingWorker:
    """The ``worker_init_fn`` of a loader whose workers ignore the first SIGTERM, and SIGINT."""

    #: The script's own ``worker_init_fn``.
    then: Callable[[int], None] | None = None

    def __call__(self, worker: int) -> None:
        """Begin, in the process of a worker."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _once)
        if self.then is not None:
            self.then(worker)


def _once(number: int, _frame: FrameType | None) -> None:
    """Ignore a request, and be ended by the next one: a peer that ends terminates workers that do not."""
    signal.signal(number, signal.SIG_DFL)
