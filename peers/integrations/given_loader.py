"""What a user's loader says about the training data: the swarm goes through its data set in an order of its own."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from gossip.errors import SettingsError
from peers.data.dataset_checks import check_indexed

__all__ = ["options_of"]


def options_of(loader: Any) -> dict[str, Any]:
    """Return the options of a loader that `Peer.batches` takes, beside data set and batch size.

    Raises:
        SettingsError: If the loader's batches cannot be shared out, or would be other ones.
    """
    if not isinstance(loader, DataLoader):
        raise SettingsError(
            f"loader: a {type(loader).__name__} of training data cannot be shared out: give a DataLoader of a data set "
            "that has a length and an index"
        )
    if loader.batch_size is None:
        raise SettingsError(
            f"loader: its batch_size is {loader.batch_size}, so it has batches of its own: give a DataLoader with a "
            "batch_size, and without a batch_sampler"
        )
    check_indexed(loader.dataset)
    if type(loader.sampler) not in (RandomSampler, SequentialSampler):
        raise SettingsError(
            f"loader: its sampler is a {type(loader.sampler).__name__}, and the swarm draws the order of the samples "
            "itself: give a DataLoader with shuffle=True. To have some samples more often, repeat them in the data set"
        )
    options = {
        "collate_fn": loader.collate_fn,
        "drop_last": loader.drop_last,
        "num_workers": loader.num_workers,
        "pin_memory": loader.pin_memory,
        "worker_init_fn": loader.worker_init_fn,
    }
    if loader.num_workers:
        options["prefetch_factor"] = loader.prefetch_factor
    return options
