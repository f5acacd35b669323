"""The splits of `benchmarks.grids` as torch runs them: a model is spread over a crew, and given its part of a batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import peers
from peers.peer import Peer
from peers.rows import row_range

__all__ = ["part_of", "spread_over"]

#: The kinds whose rows have different samples.
_BY_SAMPLES = ("fsdp", "mixed")
#: The dimension of the rows of images.
_HEIGHT = 2


def spread_over(model: nn.Sequential, kind: str, peer: Peer) -> nn.Module:
    """Spread a model over a crew."""
    if peer.crew.alone:
        return model
    mesh = peer.crew.mesh
    if kind == "fsdp":
        for layer in model:
            if next(layer.parameters(), None) is not None:
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    if kind == "domain":
        return peers.split_rows(model, mesh)
    if kind not in ("tensor", "mixed"):
        raise ValueError(f"kind {kind} cannot be run here")
    places = [place for place, layer in enumerate(model) if isinstance(layer, nn.Linear)]
    layers = list(model)
    head = nn.Sequential(*layers[places[0] :])
    styles = [ColwiseParallel(), RowwiseParallel()] * len(places)
    names = [name for name, layer in head.named_children() if isinstance(layer, nn.Linear)]
    parallelize_module(head, mesh, dict(zip(names, styles, strict=False)))
    body = nn.Sequential(*layers[: places[0]])
    return _Mixed(body, head) if kind == "mixed" else nn.Sequential(body, head)


def part_of(batch: Tensor, kind: str, peer: Peer) -> Tensor:
    """Return what a row is given of the batch of its replica."""
    if peer.crew.alone or kind == "tensor":
        return batch
    dimension = 0 if kind in _BY_SAMPLES else _HEIGHT
    start, stop = row_range(batch.shape[dimension], peer.crew.rows, peer.row)
    return batch.narrow(dimension, start, stop - start).contiguous()


class _Mixed(nn.Module):
    """Every row has its samples up to the first linear layer, and all samples from there on."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head
        for parameter in body.parameters():  # each row has the part of the sum that its own samples make
            parameter.register_hook(_summed)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> Any:
        """Return the outputs for the samples of all rows."""
        return self.head(_Gathered.apply(self.body(x)))  # type: ignore[no-untyped-call]


def _summed(gradient: Tensor) -> Tensor:
    total = gradient.contiguous()
    dist.all_reduce(total)
    return total


class _Gathered(torch.autograd.Function):
    """The samples of all rows. Its gradient is the same at all rows, for tensor parallelism sums it."""

    @staticmethod
    def forward(_: Any, own: Tensor) -> Tensor:
        """Gather."""
        found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(found, own.contiguous())
        return torch.cat(found)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        """Take the own part."""
        return gradient.chunk(dist.get_world_size())[dist.get_rank()].contiguous()
