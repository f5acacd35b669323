"""Whether data can be shared out: by the index of its samples, or as a stream; if not, what to do instead."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable, Mapping, Sized
from typing import Any, SupportsIndex

import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_convert,
)

from gossip.errors import GossipError, SettingsError
from peers.crew.crew import Crew

__all__ = [
    *("StreamError", "check_indexed", "check_of_indexed", "check_options", "count_of_stream", "counted"),
    *("is_count", "is_stream"),
]

#: Options of a `DataLoader` that say which samples come when: that is the swarm's.
_OURS = {"batch_sampler", "generator", "in_order", "sampler", "shuffle"}


class StreamError(GossipError, RuntimeError):
    """A stream cannot be read on."""


def is_stream(dataset: Any) -> bool:
    """Whether data comes as a stream: an iterable without length and index, or a function that opens a part of it."""
    if isinstance(dataset, IterableDataset):
        return True
    if isinstance(dataset, DataLoader | type) or _has_numbers(dataset):
        return False
    return isinstance(dataset, Iterable) or callable(dataset)


def check_indexed(dataset: Any) -> None:
    """Raise a `SettingsError` that says what to do if parts of a data set cannot be told by their indices."""
    name = type(dataset).__name__
    if dataset is None or isinstance(dataset, bool | int | float):
        raise SettingsError(f"dataset: {dataset!r} is not a data set. Give an object with a length and an index")
    if isinstance(dataset, DataLoader):
        raise SettingsError(
            f"dataset: {name} is a loader, not a data set. Give what it is made of: {_answer_to_loader(dataset)}"
        )
    if isinstance(dataset, str | bytes):
        raise SettingsError(f"dataset: {name} {dataset!r:.80} is a name, not a data set. Load the data set first")
    if is_stream(dataset) or not _has_numbers(dataset):
        raise SettingsError(
            f"dataset: {name} has no length and index, so its samples cannot be shared out by their numbers, epoch by "
            "epoch. For a stream, say after how many samples the swarm is through: peer.batches(stream, batch_size, "
            "samples=N). If it reads files, peer.shards(files, epochs) shares these out, in each epoch all of them"
        )
    if isinstance(dataset, Mapping) and not all(index in dataset for index in (0, len(dataset) - 1)):
        raise SettingsError(
            f"dataset: {name} holds {', '.join(map(repr, list(dataset)[:5]))}, not samples by number. Give one of "
            "these data sets"
        )


def size_of_batches(dataset: Any, batch_size: int | None) -> int:
    """Return the batch size that was given, or raise a `SettingsError` that says which call is right."""
    if batch_size is None:
        if isinstance(dataset, DataLoader):
            check_indexed(dataset)
        raise SettingsError(
            f"batch_size={batch_size}: say how many samples a batch has, as in peer.batches(dataset, 32, epochs=3)"
        )
    return batch_size


def counted(dataset: Any, batch_size: int, epochs: int, drop_last: bool, options: Mapping[str, Any]) -> tuple[int, int]:
    """Return the numbers of samples and batches, or raise a `SettingsError` if the data set cannot be shared out."""
    check_indexed(dataset)
    check_options(options)
    n = len(dataset)
    if n < 1:
        raise SettingsError(
            f"dataset: {type(dataset).__name__} is empty. Every peer passes the whole data set, not its part; to read "
            "only a part, use peer.sampler in a DataLoader of your own"
        )
    for count in (batch_size, epochs):
        if not is_count(count):
            raise SettingsError(
                f"batch_size and epochs must be whole numbers of at least 1, not {batch_size!r} and {epochs!r}"
            )
    batches = n // batch_size if drop_last else -(-n // batch_size)
    if not batches:
        raise SettingsError(
            f"drop_last leaves no batch: the data set has {n} samples, fewer than batch_size = {batch_size}"
        )
    return n, batches


def count_of_stream(
    stream: Any,
    batch_size: int,
    epochs: int | None,
    samples: int | None,
    steps: int | None,
    crew: Crew,
    options: Mapping[str, Any],
) -> int:
    """Return the number of batches of a stream, or raise a `SettingsError` if the swarm cannot go through it."""
    name = type(stream).__name__
    if not crew.alone:
        raise SettingsError(
            f"dataset: {name} is a stream, and the {crew.rows} rows of a crew need the same batch at the same moment, "
            "which streams of several processes do not give. Let the rows read the same files: peer.shards(files, "
            "epochs) gives all rows of a crew the same one"
        )
    check_options(options)
    if epochs is not None or (samples is None) == (steps is None):
        raise SettingsError(
            f"dataset: {name} is a stream, so nobody knows where an epoch of it ends. Say after how much the swarm as "
            "a whole is through: peer.batches(stream, batch_size, samples=N), or steps=N for N batches"
        )
    amount = samples if steps is None else steps
    for what, value in (("batch_size", batch_size), ("samples" if steps is None else "steps", amount)):
        if not is_count(value):
            raise SettingsError(f"{what} must be a whole number of at least 1, not {value!r}")
    if not isinstance(stream, Iterable) and not _takes_two(stream):
        raise SettingsError(
            f"dataset: the function {getattr(stream, '__name__', name)} cannot be called with two numbers. One that "
            "opens a part of a stream takes the number of the part and how many there are: "
            "lambda part, parts: read(files[part::parts])"
        )
    assert amount is not None
    return amount if steps is not None else -(-amount // batch_size)


def check_of_indexed(
    dataset: Any, epochs: int | None, samples: int | None, steps: int | None, *, sharded: bool
) -> None:
    """Raise a `SettingsError` if data that is no stream is to be gone through like one."""
    if epochs is None or samples is not None or steps is not None or sharded:
        check_indexed(dataset)
        raise SettingsError(
            f"dataset: {type(dataset).__name__} has a length and an index, so the swarm goes through it by epochs: "
            f"give epochs=N. samples={samples}, steps={steps} and sharded={sharded} are for streams"
        )


def check_options(options: Mapping[str, Any]) -> None:
    """Raise a `SettingsError` for options of a `DataLoader` that are the swarm's."""
    if wrong := sorted(_OURS & options.keys()):
        raise SettingsError(
            f"{', '.join(wrong)} cannot be set, because the swarm decides on the order; for an order of your own, use "
            "peer.sampler"
        )


def _answer_to_loader(loader: DataLoader[Any]) -> str:
    """Return what to do with a loader that was given as a data set: the very call, with the loader's own options."""
    stream = is_stream(loader.dataset)
    size: Any = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None) or "BATCH_SIZE"
    call = ["loader.dataset", str(size), "samples=SAMPLES" if stream else "epochs"]
    usual: DataLoader[Any] = DataLoader(TensorDataset(torch.zeros(1)))
    for option in ("num_workers", "pin_memory", "drop_last", "timeout", "prefetch_factor", "persistent_workers"):
        if (value := getattr(loader, option)) != getattr(usual, option) and not (
            option == "prefetch_factor" and value == 2
        ):
            call.append(f"{option}={value}")
    call += [
        f"{option}=loader.{option}"
        for option in ("collate_fn", "worker_init_fn", "multiprocessing_context")
        if getattr(loader, option) not in (getattr(usual, option), default_convert)
    ]
    told = f"peer.batches({', '.join(call)})"
    if not stream:
        told += ", or peer.sampler(loader.dataset) for a loader of your own"
    if not stream and type(loader.sampler) not in (RandomSampler, SequentialSampler):
        told += f". Its {type(loader.sampler).__name__} is not used: the swarm decides on the order"
    return told


def _has_numbers(dataset: Any) -> bool:
    return isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")


def is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least 1."""
    return isinstance(value, SupportsIndex) and not isinstance(value, bool) and operator.index(value) >= 1


def _takes_two(function: Any) -> bool:
    try:
        inspect.signature(function).bind(0, 1)
    except TypeError:
        return False
    except ValueError:  # of a function in C that does not say what it takes
        return True
    return True
