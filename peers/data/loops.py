"""The loops over data of one peer: each goes on where a checkpoint was, and ends when the swarm is through."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, Protocol

import torch

from gossip.errors import GossipError
from peers.crew.crew import Crew
from peers.data.data_news import DataNews
from peers.data.loop_makers import LoopMaker, LoopPeer, LoopSource
from peers.data.progress import OtherDataError, Progress
from peers.data.swarm_progress import SwarmProgress
from peers.setup import Setup

__all__ = ["DataLoops", "LoopError"]

#: Finished loops that are still published, for peers that are behind.
_LOOPS_PUBLISHED = 4


class LoopError(GossipError, RuntimeError):
    """A loop over data cannot go on."""


class BoardTopic(Protocol):
    """Something that grows by merging; see `peers.session.bulletin.Topic`."""

    def encode(self) -> bytes:
        """Return all that is known."""

    def merge(self, data: bytes) -> bool:
        """Take in what another knows."""


class NewsBoard(Protocol):
    """Where peers publish how far they are; see `peers.session.bulletin.Bulletin`."""

    def add(self, name: str, topic: BoardTopic) -> None:
        """Take part in a topic."""

    def remove(self, name: str) -> None:
        """Leave a topic."""

    def early(self) -> set[str]:
        """Return the topics that others take part in and this peer does not."""

    def publish(self) -> None:
        """Pass on what this peer knows."""


class Restores(Protocol):
    """Brings loops back to where a checkpoint was; see `peers.checkpoints.saving.Saving`."""

    def restore_data(self, index: int, source: LoopSource) -> None:
        """Bring a loop back."""

    def restore_random(self) -> None:
        """Bring the random generators back."""


class SharedProgress:
    """The progress of a loop as a topic: that of another data set is not merged, and the user is told."""

    def __init__(self, progress: Progress, on_other: Callable[[str], None]) -> None:
        """Wrap a progress.

        Args:
            progress: of this peer's loop.
            on_other: is called with how another peer's progress differs, each time that it does.
        """
        self._progress, self._on_other = progress, on_other

    def encode(self) -> bytes:
        """Return all that is known."""
        return self._progress.encode()

    def merge(self, data: bytes) -> bool:
        """Take in what another peer has done, if it goes through the same data."""
        try:
            return self._progress.merge(data)
        except OtherDataError as error:
            self._on_other(str(error))
            return False


class DataLoops:
    """All loops over data that the peer has begun; the swarm begins them in the same order everywhere.

    One loop runs at a time. A loop that begins ends the one before, which an exception may have left half-way with its
    generator still held by the traceback. Whoever asks the older one for a batch gets an error.
    """

    def __init__(
        self,
        setup: Setup,
        crew: Crew,
        device: torch.device,
        view: Callable[[], tuple[int, ...]],
        news: DataNews,
        warn: Callable[[str], None],
    ) -> None:
        """Begin without a loop.

        Args:
            setup: who this peer is in the swarm of its row.
            crew: the processes that hold the replica: all go through the same batches.
            device: where batches are moved to.
            view: returns the ranks of the members.
            news: tells the others what this peer goes through.
            warn: is called with a sentence that the user should read.
        """
        self._setup = setup
        self._crew = crew
        self._device = device
        self._view = view
        self._news = news
        self._warn = warn
        self._warned = False
        #: The loop that the training script is inside of.
        self._running: int | None = None
        #: In the order in which they were begun.
        self.begun: list[LoopSource] = []

    @property
    def samples(self) -> int:
        """Samples that this peer has trained on."""
        return sum(loop.samples for loop in self.begun)

    @property
    def any_running(self) -> bool:
        """Whether the training script is inside of a loop."""
        return self._running is not None

    @property
    def settles(self) -> bool:
        """Whether the script is inside of a loop that it asks for something with each step, or almost."""
        return self._running is not None and not self.begun[self._running].long

    def progress(self, *, in_step: bool) -> SwarmProgress:
        """Return how far the swarm is in the loop that was begun last.

        Args:
            in_step: whether all peers make the same steps, each with a batch of its own.
        """
        if not self.begun:
            return SwarmProgress()
        source = self.begun[-1]
        done, fraction = source.progress, source.progress.fraction
        step_share = math.nan if source.long else self._setup.world_size / (done.batches * done.epochs)
        return SwarmProgress(
            fraction=fraction,
            samples=round(fraction * source.total_samples),
            total_samples=source.total_samples,
            epoch=done.epoch,
            epochs=done.epochs,
            loop=len(self.begun) - 1,
            step_share=step_share if in_step else 0.0,
        )

    def begin(self, maker: LoopMaker, board: NewsBoard, saving: Restores) -> Generator[Any, None, None] | None:
        """Begin the next loop; return what it yields, or None if the swarm is through with it already.

        Args:
            maker: of the loop.
            board: where the progress is published.
            saving: brings the loop back to where a checkpoint was.
        """
        index = len(self.begun)
        seed = self._setup.seed + index
        told = maker.told(index)

        def on_beginning(sketch: float) -> None:
            self._news.begin(told._replace(sketch=sketch), distinct=maker.distinct)

        peer = LoopPeer(
            *(seed, self._setup.rank, self._view, self._crew, self._device, board.publish, self._warn, on_beginning)
        )
        source = maker.make(peer)
        self.begun.append(source)
        self._running = None
        saving.restore_data(index, source)
        if self._is_over(index, board):
            return None
        self._warn_of_few(source, maker.batch_size)
        # What it is comes before how far it is: then a warning can say how another peer's loop differs.
        self._news.begin(told)
        shared = SharedProgress(source.progress, lambda text: self._news.other_progress(index, text))
        board.add(f"data-{index}", shared)
        board.remove(f"data-{index - _LOOPS_PUBLISHED}")
        return self._batches(index, source, board, saving)

    def _warn_of_few(self, source: LoopSource, batch_size: int) -> None:
        peers, batches = len(self._view()), source.progress.batches
        if batches < peers and not self._warned:
            self._warned = True
            if source.long:
                told = (
                    f"there are fewer shards ({batches}) than peers ({peers}): some peers repeat what others do. Cut "
                )
                self._warn(f"{told}the data into more and smaller shards, several times as many as peers")
                return
            self._warn(
                f"an epoch has fewer batches ({batches}, of batch_size = {batch_size}) than there are peers ({peers}): "
                "some peers repeat what others do. A smaller batch_size gives each peer something of its own"
            )

    def _batches(
        self, index: int, source: LoopSource, board: NewsBoard, saving: Restores
    ) -> Generator[Any, None, None]:
        saving.restore_random()
        self._running = index
        try:
            for batch in source:
                yield batch
                if len(self.begun) - 1 != index:
                    raise LoopError(
                        f"loop {index} over peer.batches has ended, because loop {len(self.begun) - 1} has begun "
                        "inside of it: the swarm goes through one after the other. To evaluate inside of a loop, use a "
                        "DataLoader of your own; for two data sets at once, use torch.utils.data.StackDataset"
                    )
                # A newcomer may have begun before it heard where the others are.
                if self._setup.life and self._is_over(index, board):
                    break
        finally:
            if self._running == index:
                self._running = None

    def _is_over(self, index: int, board: NewsBoard) -> bool:
        """Whether a peer is in a later loop over data, and so has seen the end of this one."""

        def seen() -> bool:
            numbers = [name.removeprefix("data-") for name in board.early()]
            return any(number.isdecimal() and int(number) > index for number in numbers)

        return self._crew.decide(seen)
