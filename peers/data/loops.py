"""The loops over data of one peer: each goes on where a checkpoint was, and ends when the swarm is through."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import torch

from peers.checkpoints.saving import Saving
from peers.data.batches import Batches
from peers.session.bulletin import Bulletin
from peers.setup import Setup

__all__ = ["DataLoops"]

#: Finished loops that are still published, for peers that are behind.
_LOOPS_PUBLISHED = 4


class DataLoops:
    """All loops over data that the peer has begun; the swarm begins them in the same order everywhere."""

    def __init__(self, setup: Setup, device: torch.device, view: Callable[[], tuple[int, ...]]) -> None:
        """Begin without a loop.

        Args:
            setup: who this peer is.
            device: where batches are moved to.
            view: returns the ranks of the members.
        """
        self._setup = setup
        self._device = device
        self._view = view
        self._running = 0
        #: In the order in which they were begun.
        self.begun: list[Batches] = []

    @property
    def samples(self) -> int:
        """Samples that this peer has trained on."""
        return sum(loop.samples for loop in self.begun)

    @property
    def any_running(self) -> bool:
        """Whether the training script is inside of a loop."""
        return self._running > 0

    def begin(
        self, dataset: Any, batch_size: int, epochs: int, bulletin: Bulletin, saving: Saving, **options: Any
    ) -> Generator[Any, None, None] | None:
        """Begin the next loop; return its batches, or None if the swarm is through with it already.

        Args:
            dataset: anything with a length and an index, the same for all peers.
            batch_size: samples in a batch.
            epochs: the epochs that the swarm as a whole goes through.
            bulletin: where the progress is published.
            saving: brings the loop back to where a checkpoint was.
            options: of `Batches` and of torch's `DataLoader`.
        """
        index = len(self.begun)
        source = Batches(
            dataset,
            batch_size,
            epochs,
            seed=self._setup.seed + index,
            rank=self._setup.rank,
            ranks=self._view,
            device=self._device,
            on_progress=bulletin.publish,
            **options,
        )
        self.begun.append(source)
        saving.restore_data(index, source)
        if _is_over(index, bulletin):
            return None
        bulletin.add(f"data-{index}", source.progress)
        bulletin.remove(f"data-{index - _LOOPS_PUBLISHED}")
        return self._batches(index, source, bulletin, saving)

    def _batches(self, index: int, source: Batches, bulletin: Bulletin, saving: Saving) -> Generator[Any, None, None]:
        saving.restore_random()
        self._running += 1
        try:
            for batch in source:
                yield batch
                # A newcomer may have begun before it heard where the others are.
                if self._setup.incarnation and _is_over(index, bulletin):
                    break
        finally:
            self._running -= 1


def _is_over(index: int, bulletin: Bulletin) -> bool:
    """Whether a peer is in a later loop over data, and so has seen the end of this one."""
    numbers = [name.removeprefix("data-") for name in bulletin.early()]
    return any(number.isdecimal() and int(number) > index for number in numbers)
