"""Whether the samples of a data set can be shared out by their indices; if not, what to do instead."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sized
from typing import Any, SupportsIndex

from torch.utils.data import DataLoader, IterableDataset

from gossip.errors import SettingsError

__all__ = ["check_indexed", "counted"]

#: Options of a `DataLoader` that say which samples come when: that is the swarm's.
_OURS = {"batch_sampler", "generator", "in_order", "sampler", "shuffle"}


def check_indexed(dataset: Any) -> None:
    """Raise a `SettingsError` that says what to do if parts of a data set cannot be told by their indices."""
    name = type(dataset).__name__
    if dataset is None or isinstance(dataset, bool | int | float):
        raise SettingsError(f"dataset: {dataset!r} is not a data set. Give an object with a length and an index")
    if isinstance(dataset, DataLoader):
        raise SettingsError(
            f"dataset: {name} is a loader, not a data set. Give loader.dataset, and the loader's options as options of "
            "peer.batches: batch_size, num_workers, collate_fn and so on. Its sampler is not needed"
        )
    if isinstance(dataset, str | bytes):
        raise SettingsError(f"dataset: {name} {dataset!r:.80} is a name, not a data set. Load the data set first")
    if isinstance(dataset, IterableDataset) or not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")):
        raise SettingsError(
            f"dataset: {name} has no length and index, so the swarm cannot share out its samples. It can share out the "
            "files that they come from: peer.batches(files, 1, epochs, collate_fn=lambda one: one[0]) yields the name "
            "of one file after the other. Or let a DataLoader of your own read other samples at each peer, by peer.rank"
        )
    if isinstance(dataset, Mapping) and not all(index in dataset for index in (0, len(dataset) - 1)):
        raise SettingsError(
            f"dataset: {name} holds {', '.join(map(repr, list(dataset)[:5]))}, not samples by number. Give one of "
            "these data sets"
        )


def counted(dataset: Any, batch_size: int, epochs: int, drop_last: bool, options: Mapping[str, Any]) -> tuple[int, int]:
    """Return the numbers of samples and batches, or raise a `SettingsError` if the data set cannot be shared out."""
    check_indexed(dataset)
    if wrong := sorted(_OURS & options.keys()):
        raise SettingsError(
            f"{', '.join(wrong)} cannot be set, because the swarm decides on the order; for an order of your own, use "
            "peer.sampler"
        )
    n = len(dataset)
    if n < 1:
        raise SettingsError(
            f"dataset: {type(dataset).__name__} is empty. Every peer passes the whole data set, not its part; to read "
            "only a part, use peer.sampler in a DataLoader of your own"
        )
    for count in (batch_size, epochs):
        if not isinstance(count, SupportsIndex) or isinstance(count, bool) or operator.index(count) < 1:
            raise SettingsError(
                f"batch_size and epochs must be whole numbers of at least 1, not {batch_size!r} and {epochs!r}"
            )
    batches = n // batch_size if drop_last else -(-n // batch_size)
    if not batches:
        raise SettingsError(
            f"drop_last leaves no batch: the data set has {n} samples, fewer than batch_size = {batch_size}"
        )
    return n, batches
