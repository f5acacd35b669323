"""Looks, in a peer's first steps, at the inputs of its model, and tells the others; afterwards it costs nothing.

`peer.batches` shares data out by construction, so nothing is looked at there: with fewer batches than peers, some do
the same on purpose.
"""

from __future__ import annotations

import torch

from peers.data.data_news import DataNews
from peers.data.inputs import Inputs

__all__ = ["DataWatch"]


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
