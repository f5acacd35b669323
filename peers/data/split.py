"""What each row of a crew gets of a batch: all of it, some of its samples, or some of the rows of its images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gossip.errors import SettingsError
from peers.crew.crew import Crew
from peers.rows.row_parts import row_range

__all__ = ["Split"]

_WAYS = ("none", "batch", "rows")
#: The dimension of the rows in a batch of images: samples, channels, rows, columns.
_HEIGHT = 2


class Split:
    """The part of one row."""

    def __init__(self, way: str, crew: Crew, batch_size: int) -> None:
        """Prepare.

        Args:
            way: "none", "batch" or "rows".
            crew: the rows.
            batch_size: the samples of a whole batch.
        """
        if way not in _WAYS:
            raise SettingsError(f"split={way!r} is not a way to split a batch: use {', '.join(_WAYS)}")
        if way == "batch" and batch_size < crew.rows:
            raise SettingsError(
                f"split='batch' with batch_size={batch_size}: each of the {crew.rows} rows of a crew needs a sample"
            )
        self._way, self._crew = way, crew

    def samples_of(self, indices: list[int]) -> list[int]:
        """Return the samples that this row loads."""
        if self._way != "batch" or self._crew.alone:
            return indices
        if len(indices) < self._crew.rows:
            # A row without a sample could not compute, and the others would wait for it.
            indices = [indices[place % len(indices)] for place in range(self._crew.rows)]
        start, stop = row_range(len(indices), self._crew.rows, self._crew.row)
        return indices[start:stop]

    def rows_of(self, batch: Any) -> Any:
        """Return the batch with the image rows of this row of the crew; all but images stay as they are."""
        if self._way != "rows" or self._crew.alone:
            return batch
        if isinstance(batch, torch.Tensor):
            return self._cut(batch) if batch.dim() == _HEIGHT + 2 else batch
        if isinstance(batch, Mapping):
            return {key: self.rows_of(value) for key, value in batch.items()}
        if isinstance(batch, tuple | list):
            items = [self.rows_of(item) for item in batch]
            return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
        return batch

    def _cut(self, images: torch.Tensor) -> torch.Tensor:
        start, stop = row_range(images.shape[_HEIGHT], self._crew.rows, self._crew.row)
        return images.narrow(_HEIGHT, start, stop - start).contiguous()
