"""A model that a crew holds: the plain tensors of one row, and which rows hold the same.

Torch keeps the parts of a spread model in DTensors, whose memory belongs to FSDP or to tensor parallelism. It cannot be
moved into a flat vector. A large part is therefore a vector by itself, where it is. A small one gets a *stand-in*: a
plain tensor of its shape, which lies in a vector together with others. Its values are copied from the model before they
are exchanged, and back afterwards. Plain tensors need no stand-in.

**A tensor that several rows hold has one owner for each of its elements.** If each row mixed its own copy, with its own
partners at its own time, the copies would drift apart. So such tensors lie in vectors of their own, cut into as many
slices as there are holders. Each holder mixes its slice, and they share the slices after every exchange.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist

from gossip.errors import SettingsError
from peers.crew.crew import Crew

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

__all__ = [
    "Copies",
    "Holders",
    "StandIns",
    "check_placement",
    "gather_parts",
    "holders_of",
    "how_spread",
    "is_fsdp",
    "is_spread",
    "local_part",
    "spread_like",
]

#: The rows that hold the same part of a tensor, in their order.
Holders = tuple[int, ...]
#: Bytes from which on a part is a vector by itself: a message of its own costs little then.
_LARGE = 1 << 20

# Torch's modules for spread models take half a second to import. A script with such a model has imported them.


def is_spread(tensor: torch.Tensor) -> TypeGuard[DTensor]:
    """Whether torch has spread a tensor over several processes."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def is_fsdp(module: torch.nn.Module) -> TypeGuard[FSDPModule]:
    """Whether ``fully_shard`` was called for a module."""
    home = sys.modules.get("torch.distributed.fsdp")
    return home is not None and isinstance(module, home.FSDPModule)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the plain tensor with this row's part, in the same memory."""
    if is_spread(tensor):
        with torch.no_grad():
            part: torch.Tensor = tensor.to_local()
            return part.detach()
    return tensor


def spread_like(tensor: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Return this row's part of another tensor as torch spreads the given one, in the memory of the part.

    Optimizers need it of their state: torch computes with plain tensors and DTensors, never with both at once.
    """
    if not is_spread(tensor):
        return part
    from torch.distributed.tensor import DTensor  # whoever has such a tensor has imported it already

    return DTensor.from_local(
        part.to(tensor.device),
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )


def gather_parts(model: torch.nn.Module) -> None:
    """Let FSDP put every parameter back into its parts, which a pass without a backward pass leaves whole."""
    for module in model.modules():
        if is_fsdp(module):
            module.reshard()


def check_placement(name: str, tensor: torch.Tensor, crew: Crew) -> None:
    """Raise a `SettingsError` if a DTensor is not spread over this crew, or holds sums that are not finished."""
    if not is_spread(tensor):
        return
    mesh = tensor.device_mesh
    if mesh.size() > crew.rows:
        raise SettingsError(
            f"{name} is spread over {mesh.size()} processes, and a replica has {crew.rows} here: start the run with "
            f"gossip launch --grid {mesh.size()}xREPLICAS, and spread the model over peer.crew.mesh"
        )
    if mesh.get_coordinate() is None:
        raise SettingsError(
            f"{name} is spread over a mesh that row {crew.row} of the crew has no place in: spread the model over "
            "peer.crew.mesh, or over a mesh of all rows"
        )
    if any(placement.is_partial() for placement in tensor.placements):
        raise SettingsError(
            f"{name} is a sum that its processes have not finished ({tensor.placements}): only Shard and Replicate "
            "can be mixed"
        )


def holders_of(named: Sequence[tuple[str, torch.Tensor]], crew: Crew) -> list[Holders]:
    """Return for each tensor the rows that hold the same part of it. All rows of the crew are to call it."""
    if crew.alone:
        return [(crew.row,)] * len(named)
    own = {name: how_spread(tensor) for name, tensor in named}
    everybody = crew.gather(own)
    return [tuple(row for row, parts in enumerate(everybody) if parts.get(name) == own[name]) for name, _ in named]


def how_spread(tensor: torch.Tensor) -> str:
    """Return what two rows have in common that hold the same part of a tensor: its kind, and where it is cut."""
    kind = f"{tensor.dtype} {tuple(tensor.shape)}"
    if not is_spread(tensor):
        return kind
    place = tensor.device_mesh.get_coordinate() or ()
    parts = [
        (repr(placement), size, coordinate)
        for placement, size, coordinate in zip(tensor.placements, tensor.device_mesh.shape, place, strict=True)
        # Not is_shard: a dimension that FSDP and tensor parallelism both cut has a placement of another class.
        if not placement.is_replicate() and size > 1
    ]
    return f"{kind} {parts}"


class StandIns:
    """The stand-ins of the DTensors among the tensors that are mixed."""

    def __init__(self, tensors: Sequence[torch.Tensor], holders: Sequence[Holders]) -> None:
        """Find or make them.

        Args:
            tensors: all that are mixed.
            holders: of each; what several rows hold has to lie in a vector with slices.
        """
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        #: The parts that are vectors by themselves.
        self.large: list[torch.Tensor] = []
        for tensor, held in zip(tensors, holders, strict=True):
            if not is_spread(tensor):
                continue
            part = local_part(tensor)
            if len(held) == 1 and part.is_contiguous() and part.numel() * part.element_size() >= _LARGE:
                self.large.append(part)
            else:
                part = part.clone(memory_format=torch.contiguous_format)
            self._pairs.append((tensor, part))
        self._found = {id(tensor): part for tensor, part in self._pairs}

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the stand-in of a tensor; a plain tensor stands for itself."""
        return self._found.get(id(tensor), tensor)

    def take(self) -> None:
        """Copy the values of the model into the stand-ins."""
        for stand_in, part in self._apart():
            stand_in.copy_(part)

    def put(self) -> None:
        """Copy the values of the stand-ins into the model."""
        for stand_in, part in self._apart():
            part.copy_(stand_in)

    def _apart(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the stand-ins that are not the memory of the model, with their parts of it."""
        with torch.no_grad():
            for tensor, stand_in in self._pairs:
                part = local_part(tensor)
                # Torch moves a large part too, if the script moves or loads the model: then it is copied from there.
                if part.data_ptr() != stand_in.data_ptr():
                    yield stand_in, part


class Copies:
    """The vectors that several rows hold, and the process groups in which each has its slice shared."""

    def __init__(self, crew: Crew, kinds: Sequence[Holders]) -> None:
        """Make the groups. All rows of the crew are to call it.

        Args:
            crew: the rows.
            kinds: the holders of this row's vectors.
        """
        self._crew = crew
        several = {holders for holders in kinds if len(holders) > 1}
        everybody = sorted({tuple(one) for row in crew.gather(sorted(map(list, several))) for one in row})
        self._groups = {holders: self._group(holders) for holders in everybody}

    def _group(self, holders: Holders) -> dist.ProcessGroup | None:
        if holders == tuple(range(self._crew.rows)):
            return None  # the crew's own
        return self._crew.group(holders)

    def slice_of(self, holders: Holders, size: int) -> tuple[int, int]:
        """Return the start and the stop of this row's slice of a vector of this size."""
        place, part = holders.index(self._crew.row), size // len(holders)
        return place * part, (place + 1) * part

    def share(self, holders: Holders, whole: torch.Tensor) -> None:
        """Let every holder of a vector have the slices of the others."""
        if len(holders) > 1:
            start, stop = self.slice_of(holders, whole.numel())
            self._crew.share_slices(whole, whole[start:stop], self._groups[holders])

    def take_first(self, holders: Holders, whole: torch.Tensor) -> None:
        """Let every holder of a vector have what the first of them has."""
        if len(holders) > 1:
            self._crew.take_first(whole, holders[0], self._groups[holders])
