"""The tensors of a model that are not mixed, as blocks of bytes: frozen parameters and integer buffers.

Peers compare hashes of these blocks and send only those that differ (`gossip.core.annex`). A block is read from and
written to the memory of the model, so no second copy of the tensors is ever made. Small tensors share a block, and a
large one begins with a block of its own. The bytes are in the order of the elements, whatever the strides are: peers
may keep a tensor in different orders in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
import xxhash

from gossip.errors import SettingsError
from gossip.values.blocks import Values
from gossip.wire.limits import ANNEX_BYTES

__all__ = ["RestBlocks", "digest"]

#: Tensors are read as integers of the same size: copies keep every bit, of any dtype.
_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
#: In a block each tensor begins at a multiple of this, so that it can be read as integers there too.
_ALIGNMENT = 8


class _Span(NamedTuple):
    """Elements of a tensor, and where their bytes begin in a block."""

    tensor: torch.Tensor
    start: int
    stop: int
    at: int


class RestBlocks:
    """The blocks of one model's unmixed tensors."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Cut the tensors into blocks; their memory stays where it is."""
        for name, tensor in tensors.items():
            _check(name, tensor)
        self._blocks = list(_cut(tensors.values()))
        #: The bytes of each block.
        self.sizes = [_end(spans[-1]) for spans in self._blocks]

    def read(self, block: int) -> Values:
        """Return a copy of a block, as bytes."""
        content = np.zeros(self.sizes[block], np.uint8)
        for view, place in self._places(block, content):
            place.copy_(view)
        return content

    def write(self, block: int, content: Values) -> None:
        """Replace a block by these bytes."""
        for view, place in self._places(block, content.copy()):
            view.copy_(place)

    def _places(self, block: int, content: Values) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Return the parts of the tensors of a block, each with its place in bytes that are like the block."""
        flat = torch.from_numpy(content)
        for tensor, start, stop, at in self._blocks[block]:
            raw = tensor.detach().view(_RAW[tensor.element_size()])
            for view in _views(raw, start, stop):
                end = at + view.numel() * view.element_size()
                yield view, flat[at:end].view(view.dtype).view(view.shape)
                at = end


def digest(tensor: torch.Tensor) -> bytes:
    """Return a hash of a tensor's elements, computed block by block."""
    rest, found = RestBlocks({"": tensor}), xxhash.xxh3_128()
    for block in range(len(rest.sizes)):
        found.update(rest.read(block).data)
    return found.digest()


def _check(name: str, tensor: torch.Tensor) -> None:
    if tensor.element_size() not in _RAW:
        raise SettingsError(f"{name} is {tensor.dtype}, with {tensor.element_size()} bytes; the most is {max(_RAW)}")
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise SettingsError(
            f"{name} is expanded: several of its elements are one number in memory, so it cannot be made equal to that "
            f"of another peer. Give it memory of its own with {name}.clone() before attach"
        )


def _cut(tensors: Iterable[torch.Tensor]) -> Iterator[list[_Span]]:
    """Return the blocks, each a row of spans."""
    block: list[_Span] = []
    for tensor in tensors:
        size, start = tensor.element_size(), 0
        at = _aligned(block)
        if block and at + tensor.numel() * size > ANNEX_BYTES:
            yield block
            block, at = [], 0
        while start < tensor.numel():
            stop = min(tensor.numel(), start + (ANNEX_BYTES - at) // size)
            block.append(_Span(tensor, start, stop, at))
            start, at = stop, 0
            if start < tensor.numel():
                yield block
                block = []
    if block:
        yield block


def _end(span: _Span) -> int:
    return span.at + (span.stop - span.start) * span.tensor.element_size()


def _aligned(block: list[_Span]) -> int:
    return -(-_end(block[-1]) // _ALIGNMENT) * _ALIGNMENT if block else 0


def _views(tensor: torch.Tensor, start: int, stop: int) -> Iterator[torch.Tensor]:
    """Return views that together are the elements from ``start`` to ``stop``, whatever the strides are."""
    if stop - start == tensor.numel():
        yield tensor
    elif tensor.is_contiguous():
        yield tensor.view(-1)[start:stop]
    else:
        row = tensor.numel() // len(tensor)
        first, last = -(-start // row), stop // row  # the rows that are within as a whole
        if first > last:
            yield from _views(tensor[last], start - last * row, stop - last * row)
            return
        if start < first * row:
            yield from _views(tensor[first - 1], start - (first - 1) * row, row)
        if first < last:
            yield tensor[first:last]
        if last * row < stop:
            yield from _views(tensor[last], 0, stop - last * row)
