"""A loop over data that ends after a number of samples, and a clock that ends with it.

Frameworks let users ask for half an epoch or for a number of steps. `Peer.batches` goes through whole epochs, so this
one begins as many as are needed and ends when the swarm has done the samples.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

from peers.data.swarm_progress import SwarmProgress
from peers.peer import Peer

__all__ = ["SampleLimit"]


class SampleLimit:
    """The batches of a peer until the swarm has done its samples. It is the clock of their schedule too."""

    def __init__(
        self, peer: Peer, dataset: Any, batch_size: int, batches: int, *, accumulation: int = 1, **options: Any
    ) -> None:
        """Prepare; the loop begins when it is iterated over.

        Args:
            peer: with a model attached by then.
            dataset: anything with a length and an index.
            batch_size: samples in a batch.
            batches: the batches after which the swarm as a whole is through.
            accumulation: the batches of one step.
            options: of `Peer.batches` and of torch's `DataLoader`.
        """
        self._peer, self.dataset, self._batch_size, self._batches = peer, dataset, batch_size, batches
        self._accumulation, self._options = accumulation, options
        self._running: Generator[Any, None, None] | None = None
        size = len(dataset)
        #: The batches of an epoch.
        self.in_epoch = size // batch_size if options.get("drop_last") else -(-size // batch_size)

    def __len__(self) -> int:
        return self._batches

    @property
    def epochs(self) -> float:
        """The epochs that the swarm goes through, maybe not a whole number."""
        return self._batches / max(self.in_epoch, 1)

    @property
    def progress(self) -> SwarmProgress:
        """How far the swarm is on the way to its last sample."""
        now = self._peer.progress
        whole = max(now.epochs, 1) / self.epochs
        share = now.step_share * self._accumulation
        return replace(now, fraction=min(1.0, now.fraction * whole), step_share=share * whole)

    def __iter__(self) -> Iterator[Any]:
        epochs = -(-self._batches // max(self.in_epoch, 1))
        self._running = loop = self._until_the_last(epochs)
        return loop

    def _until_the_last(self, epochs: int) -> Generator[Any, None, None]:
        for batch in self._peer.batches(self.dataset, self._batch_size, epochs, **self._options):
            yield batch
            if self._batches % self.in_epoch and self.progress.fraction >= 1:
                return

    def end(self) -> None:
        """End the loop, which a framework may have left half-way; the last batch that it got is done."""
        if self._running is not None:
            next(self._running, None)  # asking for the next one says so
            self._running.close()
