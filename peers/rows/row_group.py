"""The processes that share the rows, and what goes between them.

All processes of a group call the same methods in the same order. Forward passes do since they run the same model, and
backward passes do since autograd runs the nodes of equal graphs in the same order: the latest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from gossip.errors import SettingsError
from peers.rows.row_parts import Bounds, RowsError, overlaps

__all__ = ["RowGroup"]


class RowGroup:
    """A process group whose members each hold a part of the rows."""

    def __init__(self, mesh_or_group: Any) -> None:
        """Take a DeviceMesh of one dimension, or a process group of torch."""
        #: Returns the group. The group itself is not kept: gloo aborts at the end of a process that still refers to it.
        self._find: Callable[[], Any] = _finder(mesh_or_group)
        group = self._find()
        self.size = dist.get_world_size(group)
        self.row = dist.get_rank(group)
        if self.row < 0:
            raise SettingsError(f"mesh_or_group: this process is not one of the {self.size} processes of {group}")
        self._ranks = [dist.get_global_rank(group, row) for row in range(self.size)]
        #: Bytes of rows that this process has sent to others: halos and gathered rows, forward and backward.
        self.sent_bytes = 0
        #: Messages with such rows.
        self.sent_messages = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> RowGroup:
        """Return itself: a copy of a model is split among the same processes."""
        return self

    @property
    def _group(self) -> Any:
        if not dist.is_initialized():
            raise RowsError(
                f"the process group of these {self.size} rows was destroyed: a model that was split needs it as long "
                "as it is used"
            )
        return self._find()

    def exchange(self, sent: Sequence[tuple[int, torch.Tensor]], received: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Send tensors to rows and fill tensors with what comes from rows; all are contiguous."""
        if not sent and not received:
            return
        group = self._group
        work = [dist.P2POp(dist.irecv, tensor, self._ranks[row], group) for row, tensor in received]
        work += [dist.P2POp(dist.isend, tensor, self._ranks[row], group) for row, tensor in sent]
        self.sent_bytes += sum(tensor.numel() * tensor.element_size() for _, tensor in sent)
        self.sent_messages += len(sent)
        for one in dist.batch_isend_irecv(work):
            one.wait()

    def fetch(
        self, local: torch.Tensor, bounds: Bounds, needed: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, torch.Tensor]]:
        """Send others the rows that they need, and return what this process needs of theirs: first, last but one, rows.

        Args:
            local: this process's rows.
            bounds: who holds which rows.
            needed: the rows that each process needs.
        """
        begin = bounds[self.row]
        sent: list[tuple[int, torch.Tensor]] = []
        received: list[tuple[int, torch.Tensor]] = []
        found: list[tuple[int, int, torch.Tensor]] = []
        for sender, receiver, first, last in overlaps(bounds, needed):
            if sender == self.row:
                sent.append((receiver, local.narrow(2, first - begin, last - first).contiguous()))
            elif receiver == self.row:
                shape = (*local.shape[:2], last - first, local.shape[3])
                received.append((sender, local.new_empty(shape)))
                found.append((first, last, received[-1][1]))
        self.exchange(sent, received)
        return found

    def give_back(
        self, rows: torch.Tensor, bounds: Bounds, needed: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, torch.Tensor]]:
        """Send what `fetch` brought back to where it came from, and return what others send: for gradients.

        Args:
            rows: values for the rows that this process needed.
            bounds: who holds which rows.
            needed: the rows that each process needed.
        """
        begin = needed[self.row][0]
        sent: list[tuple[int, torch.Tensor]] = []
        received: list[tuple[int, torch.Tensor]] = []
        found: list[tuple[int, int, torch.Tensor]] = []
        for owner, user, first, last in overlaps(bounds, needed):
            if user == self.row:
                sent.append((owner, rows.narrow(2, first - begin, last - first).contiguous()))
            elif owner == self.row:
                shape = (*rows.shape[:2], last - first, rows.shape[3])
                received.append((user, rows.new_empty(shape)))
                found.append((first, last, received[-1][1]))
        self.exchange(sent, received)
        return found

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum over all rows, the same to the last bit at each; half precision is summed in float32."""
        wide = tensor.dtype in (torch.float16, torch.bfloat16)
        total = tensor.float() if wide else tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self._group)
        return total.to(tensor.dtype)

    def table(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensors of all rows, stacked; all have the same shape."""
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous(), group=self._group)
        return torch.stack(parts)

    def copy_from_first(self, tensors: Sequence[torch.Tensor]) -> None:
        """Overwrite tensors by those of row 0."""
        for tensor in tensors:
            values = tensor.detach().contiguous()
            dist.broadcast(values, self._ranks[0], group=self._group)
            tensor.detach().copy_(values)


def _finder(mesh_or_group: Any) -> Callable[[], Any]:
    """Return a function that returns the process group, without keeping it alive."""
    if hasattr(mesh_or_group, "get_group"):
        if mesh_or_group.ndim != 1:
            raise SettingsError(
                f"mesh_or_group: this mesh has {mesh_or_group.ndim} dimensions, and rows are shared along one: name "
                "it, as in mesh['rows']"
            )
        return lambda: mesh_or_group.get_group()
    if not isinstance(mesh_or_group, dist.ProcessGroup):
        raise SettingsError(
            f"mesh_or_group: a {type(mesh_or_group).__name__} is neither a DeviceMesh nor a process group of "
            "torch.distributed"
        )
    if mesh_or_group is dist.group.WORLD:
        return lambda: dist.group.WORLD
    name = mesh_or_group.group_name
    return lambda: _named_group(name)


def _named_group(name: str) -> Any:
    """Return the process group that torch has under a name."""
    for group in dist.distributed_c10d._world.pg_map:
        if group.group_name == name:
            return group
    raise RowsError(f"the process group {name} was destroyed, and a model that was split over its rows needs it")
