"""Numbers that stand for data, so that peers can compare what they hold and what they draw without sending it.

There are two kinds. `rows_hash` is exact: equal numbers mean equal rows, in any order. It is for the inputs of a model,
where a difference in the last bit only means that nothing is said. `sketch_of` is for whole data sets, where a
difference is what is looked for. It is a real number that moves little when floating-point values move little, because
hosts that normalize the same samples may round differently.

A data set's own ``__getitem__`` is never called. It may be slow, it may be random (augmentation), and it may open files
that must be opened in the workers of a loader and nowhere else. So a sketch looks only at what lies in memory as plain
values, or in a file of such: lists, arrays, tensors, the indices of a `Subset`, the table of a Hugging Face data set.
Of any other data set nothing but the length is known.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from topologies.draws import draw, draw_array

__all__ = ["rows_hash", "sketch_of", "tensors_in"]

#: The most values of a row, and of a tensor, that a hash looks at.
_ROW, _TENSOR = 1024, 1 << 18
#: The most samples that a sketch looks at, and values of each.
_SAMPLES, _VALUES = 64, 256
#: The most rows of a file that a sketch looks at.
_ROWS = 8
#: Values within values, such as a label in a tuple in a list, are looked at down to this depth.
_DEPTH = 4
_MASK = (1 << 64) - 1

Numbers = npt.NDArray[np.float64]


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in the arguments of a model: also those within tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from tensors_in(one)


def rows_hash(tensor: torch.Tensor, key: int) -> int:
    """Return 64 bits that depend on the rows of a tensor, but not on their order.

    The order does not count, so a whole data set that is shuffled anew for each step stays the same batch.
    """
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    rows = tensor.shape[0] if tensor.dim() else 1
    if not tensor.numel():
        return draw(key, rows)
    table = tensor.reshape(rows, -1)
    columns = max(1, min(_ROW, _TENSOR // rows))
    table = table[:, :: -(-table.shape[1] // columns)]
    kind = torch.float64 if table.is_floating_point() else torch.int64
    bits = table.to("cpu", kind).contiguous().numpy().view(np.uint64)
    factors = draw_array((key,), np.arange(bits.shape[1])) | np.uint64(1)
    sums = ((bits ^ (bits >> np.uint64(29))) * factors).sum(axis=1, dtype=np.uint64)
    return int(draw_array((key, 1), sums).sum(dtype=np.uint64)) & _MASK


def sketch_of(dataset: Any) -> float | None:
    """Return a number that is about the same wherever a data set is the same; None if it cannot be told.

    Two data sets that differ have numbers further apart than 0.001, except once in some thousand cases.
    """
    if isinstance(dataset, Subset):
        return _together([_sequence(dataset.indices), sketch_of(dataset.dataset)])
    if isinstance(dataset, TensorDataset):
        return _together([_sequence(tensor) for tensor in dataset.tensors])
    if isinstance(dataset, ConcatDataset):
        return _together([sketch_of(part) for part in dataset.datasets])
    if hasattr(dataset, "with_format") and hasattr(dataset, "num_rows"):
        return _stored(dataset)
    return _sequence(dataset)


def _sequence(values: Any) -> float | None:
    """Return the sketch of some evenly chosen elements of a plain sequence."""
    if type(values) not in (list, tuple, range) and not isinstance(values, np.ndarray | torch.Tensor):
        return None
    if not len(values):
        return 0.0
    chosen = np.unique(np.linspace(0, len(values) - 1, _SAMPLES).astype(np.int64)).tolist()
    return _sketch(np.concatenate([_numbers(values[index]) for index in chosen]))


def _stored(dataset: Any) -> float | None:
    """Return the sketch of a data set of Hugging Face's: of rows as they lie in its file, before any transform."""
    chosen = np.unique(np.linspace(0, dataset.num_rows - 1, _ROWS).astype(np.int64)).tolist()
    try:
        rows = dataset.with_format("arrow")[chosen].to_pylist()
    except Exception:  # noqa: BLE001 - another library's, in any version: without a sketch only the length is compared
        return None
    return _sketch(np.concatenate([_numbers(row) for row in rows]))


def _sketch(numbers: Numbers) -> float:
    """Return the sum of the numbers under random signs, relative to their size: about normal, if they are arbitrary."""
    numbers = np.nan_to_num(numbers, nan=1.0, posinf=2.0, neginf=-2.0)
    signs = 1.0 - 2.0 * (draw_array((0,), np.arange(len(numbers))) >> np.uint64(63)).astype(np.float64)
    largest = float(np.abs(numbers).max(initial=0.0))
    if not largest:
        return float(len(numbers))
    numbers = numbers / largest
    return float((numbers * signs).sum() / np.sqrt((numbers * numbers).sum()))


def _numbers(value: Any, depth: int = 0) -> Numbers:
    """Return numbers that stand for one sample; none for what is not plain."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_complex() or value.is_meta or value.is_quantized:
            return np.zeros(0)
        flat = value.detach().reshape(-1)[:: max(1, -(-value.numel() // _VALUES))].cpu()
        return flat.double().numpy() if value.is_floating_point() else _scattered(flat.long().numpy())
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value).reshape(-1)[:: max(1, -(-value.size // _VALUES))]
        if array.dtype.kind == "f":
            return array.astype(np.float64)
        return _scattered(array) if array.dtype.kind in "biu" else np.zeros(0)
    if isinstance(value, float):
        return np.array([value])
    if isinstance(value, int):
        return _scattered(np.array([value & _MASK], np.uint64))
    if isinstance(value, str | os.PathLike):
        # Hosts may keep the same files in different places: only the name of the file counts.
        name = os.fspath(value)
        value = name if isinstance(name, bytes) else name.rstrip("/").rpartition("/")[2].encode()
    if isinstance(value, bytes):
        return _scattered(np.frombuffer(hashlib.blake2b(value, digest_size=8).digest(), "<u8"))
    if depth < _DEPTH and isinstance(value, Mapping):
        value = list(value.values())
    if depth < _DEPTH and isinstance(value, Sequence):
        return np.concatenate([np.zeros(0), *(_numbers(one, depth + 1) for one in value[:_VALUES])])
    return np.zeros(0)


def _scattered(integers: npt.NDArray[Any]) -> Numbers:
    """Return a number from 0 to 1 for each integer, another one for its neighbour: integers are exact everywhere."""
    return draw_array((1,), integers).astype(np.float64) / _MASK


def _together(parts: Sequence[float | None]) -> float | None:
    known = [(index, part) for index, part in enumerate(parts) if part is not None]
    return sum(part * (1 + index / 7) for index, part in known) if known else None
