"""The loops over data of one peer: each goes on where a checkpoint was, and ends when the swarm is through."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

import torch

from peers.data.batches import Batches
from peers.data.progress import Progress
from peers.setup import Setup

__all__ = ["DataLoops"]

#: Finished loops that are still published, for peers that are behind.
_LOOPS_PUBLISHED = 4


class NewsBoard(Protocol):
    """Where peers publish how far they are; see `peers.session.bulletin.Bulletin`."""

    def add(self, name: str, topic: Progress) -> None:
        """Take part in a topic."""

    def remove(self, name: str) -> None:
        """Leave a topic."""

    def early(self) -> set[str]:
        """Return the topics that others take part in and this peer does not."""

    def publish(self) -> None:
        """Pass on what this peer knows."""


class Restores(Protocol):
    """Brings loops back to where a checkpoint was; see `peers.checkpoints.saving.Saving`."""

    def restore_data(self, index: int, batches: Batches) -> None:
        """Bring a loop back."""

    def restore_random(self) -> None:
        """Bring the random generators back."""


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
        self, dataset: Any, batch_size: int, epochs: int, board: NewsBoard, saving: Restores, **options: Any
    ) -> Generator[Any, None, None] | None:
        """Begin the next loop; return its batches, or None if the swarm is through with it already.

        Args:
            dataset: anything with a length and an index, the same for all peers.
            batch_size: samples in a batch.
            epochs: the epochs that the swarm as a whole goes through.
            board: where the progress is published.
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
            on_progress=board.publish,
            **options,
        )
        self.begun.append(source)
        saving.restore_data(index, source)
        if _is_over(index, board):
            return None
        board.add(f"data-{index}", source.progress)
        board.remove(f"data-{index - _LOOPS_PUBLISHED}")
        return self._batches(index, source, board, saving)

    def _batches(self, index: int, source: Batches, board: NewsBoard, saving: Restores) -> Generator[Any, None, None]:
        saving.restore_random()
        self._running += 1
        try:
            for batch in source:
                yield batch
                # A newcomer may have begun before it heard where the others are.
                if self._setup.life and _is_over(index, board):
                    break
        finally:
            self._running -= 1


def _is_over(index: int, board: NewsBoard) -> bool:
    """Whether a peer is in a later loop over data, and so has seen the end of this one."""
    numbers = [name.removeprefix("data-") for name in board.early()]
    return any(number.isdecimal() and int(number) > index for number in numbers)
