"""The parts of the flat vectors that an optimizer trains: only they get an outer step or a direction.

The vectors also hold tensors that are mixed and not trained, such as the statistics of batch norm. These have no
direction: a variance that overshoots becomes negative.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from peers.model.replica import Replica

__all__ = ["Segment", "Trained", "like", "rate_of"]

_HALF = (torch.bfloat16, torch.float16)


class Segment(NamedTuple):
    """A range of one vector that lies in one shard and belongs to one parameter group of the optimizer."""

    shard: int
    group: int
    vector: int
    start: int
    stop: int

    def of(self, vectors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return this range of vectors that have the replica's layout; not a copy."""
        return vectors[self.vector][self.start : self.stop]


class Trained:
    """The segments of one replica that its optimizer trains."""

    def __init__(self, replica: Replica, optimizer: torch.optim.Optimizer) -> None:
        self._replica = replica
        self._optimizer = optimizer
        self._counts: list[int] = []
        self._segments: list[Segment] = []

    def segments(self, shards: Container[int] | None = None) -> Iterator[Segment]:
        """Return the segments that lie in the shards, or all."""
        counts = [len(group["params"]) for group in self._optimizer.param_groups]
        if counts != self._counts:  # a group may be added at any time
            self._counts, self._segments = counts, list(self._find())
        return (one for one in self._segments if shards is None or one.shard in shards)

    def rates(self) -> list[float]:
        """Return the present learning rate of each group; 1 if the optimizer has none."""
        return [rate_of(group) for group in self._optimizer.param_groups]

    def group(self, segment: Segment) -> dict[str, Any]:
        """Return the optimizer's settings for a segment."""
        found: dict[str, Any] = self._optimizer.param_groups[segment.group]
        return found

    def _find(self) -> Iterator[Segment]:
        for vector, start, stop, group in self._spans():
            for shard, (first, last) in self._replica.bounds(vector):
                if first < stop and start < last:
                    yield Segment(shard, group, vector, max(start, first), min(stop, last))

    def _spans(self) -> list[tuple[int, int, int, int]]:
        """Return the ranges of the parameters of each group; adjacent ranges of one group are joined."""
        places: dict[tuple[int, int], tuple[int, int]] = {}
        for index, group in enumerate(self._optimizer.param_groups):
            for parameter in group["params"]:
                if (place := self._replica.place(parameter)) is not None:
                    places[place[0], place[1]] = place[2], index
        spans: list[tuple[int, int, int, int]] = []
        for (vector, start), (stop, index) in sorted(places.items()):
            if spans and (spans[-1][0], spans[-1][2], spans[-1][3]) == (vector, start, index):
                spans[-1] = vector, spans[-1][1], stop, index
            else:
                spans.append((vector, start, stop, index))
        return spans


def rate_of(group: dict[str, Any]) -> float:
    """Return the learning rate of a group; 1 if the optimizer has none."""
    return float(group.get("lr", 1.0))


def like(vectors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return zeros in the same layout, in float32 for vectors of half precision: sums need the precision."""
    return [torch.zeros_like(one, dtype=torch.float32 if one.dtype in _HALF else one.dtype) for one in vectors]
