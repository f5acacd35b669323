"""Looks, in a peer's first steps, at the inputs of its model, and tells the others; afterwards it costs nothing.

`peer.batches` shares data out by construction, so nothing is looked at there: with fewer batches than peers, some do
the same on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from peers.data.data_news import DataNews, Sampled
from peers.data.fingerprints import sketch_of
from peers.data.inputs import Inputs

__all__ = ["DataComparison", "DataWatch"]


class DataWatch:
    """The look at one peer's data. For the trainer's thread."""

    def __init__(self, model: torch.nn.Module, news: DataNews) -> None:
        """Prepare.

        Args:
            model: the replica's.
            news: what this peer and the others say of their data; it goes out with the peer's next report.
        """
        self._news = news
        self._inputs = Inputs(model)

    def step_over(self) -> bool:
        """Note that a step has ended; return whether there is more to look at."""
        if self._news.in_loop:
            self.close()
            return False
        if not self._inputs.step_over():
            return True
        self._news.saw(self._inputs.digest, constant=self._inputs.constant)
        return False

    def close(self) -> None:
        """Look no more."""
        self._inputs.close()


class DataBoard(Protocol):
    """Where peers publish what they say of their data; see `peers.session.bulletin.Bulletin`."""

    def add(self, name: str, topic: DataNews) -> None:
        """Take part in a topic."""


class DataComparison:
    """What one peer says of its data, and the look at it in the first steps. For the trainer's thread."""

    def __init__(self, rank: int, warn: Callable[[str], None], *, again: bool) -> None:
        """Begin with nothing to say; see `DataNews`."""
        self.news = DataNews(rank, warn, again=again)
        self._watch: DataWatch | None = None

    def begin(self, model: torch.nn.Module, board: DataBoard, *, alone: bool) -> None:
        """Compare this peer's data with that of the others, if there are any."""
        board.add("data", self.news)
        if not alone:
            self._watch = DataWatch(model, self.news)

    def sampled(self, dataset: Any) -> None:
        """Tell of a data set, or the number of its samples, that was given to `peer.sampler`."""
        number = isinstance(dataset, int)
        self.news.sample(Sampled(dataset, None) if number else Sampled(len(dataset), sketch_of(dataset)))

    def step_over(self) -> None:
        """Note that a step has ended."""
        if self._watch is not None and not self._watch.step_over():
            self._watch = None

    def close(self) -> None:
        """Look no more."""
        if self._watch is not None:
            self._watch.close()
