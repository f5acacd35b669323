"""The crew of a replica: the processes that hold it between them, and how they decide as one.

The rows of a crew compute together over torch.distributed. Their process group is torch's default group, so ordinary
code of FSDP and of tensor parallelism runs unchanged. Values need no agreement: each row exchanges its own part with
the same row of other replicas. Control does: which batch comes next, whether to stop and what to resume is decided
once, by the lead row or by all together, and every row follows. Otherwise the rows would wait for each other for ever.

A process without a grid is a crew of one. It decides alone, and nothing here costs it anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgpack
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from gossip.errors import GossipError
from gossip.grids import Grid

__all__ = ["Crew", "CrewError"]

Result = TypeVar("Result")

#: Bytes of a word that goes round in one message, its length included. Longer ones take a second message.
_WORD = 256
_LENGTH = 4
#: Parts of torch's errors that come from the messages between rows; and of those about a row that does not answer.
_BACKENDS = ("gloo/", "NCCL")
_SILENT = ("timed out", "timeout")
#: Where gloo reads on which network interface it listens.
_INTERFACE = "GLOO_SOCKET_IFNAME"


class CrewError(GossipError, RuntimeError):
    """The rows of a replica could not go on together."""


class Crew:
    """The rows of one replica, seen from one of them. For the trainer's thread."""

    def __init__(self, grid: Grid, rank: int, device: torch.device, timeout: float) -> None:
        """See `peers.crew.forming`, which makes the process group of a crew of several.

        Args:
            grid: of the run.
            rank: of this process in the run.
            device: where the model is.
            timeout: seconds after which a row that does not answer is given up, and the crew with it.
        """
        self._grid, self._device, self._timeout = grid, device, timeout
        #: The number of rows, P_r.
        self.rows = grid.rows
        #: The number of this replica, and that of this process in it.
        self.replica, self.row = divmod(rank, grid.rows)
        self._mesh: DeviceMesh | None = None
        #: Whether this object made the default process group, and so ends it.
        self._made = self.rows > 1
        #: What the environment said about gloo before `keep_inside`; None if that was not called.
        self._interface: tuple[str | None] | None = None

    @classmethod
    def single(cls) -> Crew:
        """Return the crew of a model that one process holds."""
        return cls(Grid(1, 1), 0, torch.device("cpu"), timeout=1.0)

    @property
    def alone(self) -> bool:
        """Whether the replica has no other rows."""
        return self.rows == 1

    @property
    def is_lead(self) -> bool:
        """Whether this row decides what the crew does next."""
        return self.row == 0

    @property
    def mesh(self) -> DeviceMesh:
        """The rows as a device mesh of one dimension, named ``row``: for ``fully_shard`` and ``parallelize_module``.

        A mesh of several dimensions is torch's ``init_device_mesh``, over as many processes as the crew has rows.
        """
        if self._mesh is None:
            if not dist.is_initialized():  # a crew of one, and nobody asked for a process group so far
                store = HashStore()
                dist.init_process_group(
                    backend_for(self._device), store=store, rank=0, world_size=1, timeout=self._limit
                )
                self._made = True
            elif dist.get_world_size() != self.rows:
                raise CrewError(
                    f"the script's own process group has {dist.get_world_size()} processes, and this replica has "
                    f"{self.rows} (--grid {self._grid}): leave out init_process_group, since the crew makes the group"
                )
            self._mesh = init_device_mesh(self._device.type, (self.rows,), mesh_dim_names=("row",))
        return self._mesh

    @property
    def _limit(self) -> timedelta:
        return timedelta(seconds=self._timeout)

    def keep_inside(self) -> None:
        """Let gloo listen on the loopback interface alone, as long as the crew is there.

        It would listen where the name of the host leads to, or where the environment says, which clusters set for jobs
        across hosts.
        """
        self._interface = (os.environ.get(_INTERFACE),)
        os.environ[_INTERFACE] = "lo"

    # Deciding

    def decide(self, compute: Callable[[], Result]) -> Result:
        """Return what the lead row computes, at every row. All rows are to call it.

        Args:
            compute: is called at the lead row alone. What it returns is made of numbers, text, lists and None.
        """
        if self.alone:
            return compute()
        word = _packed([compute()]) if self.is_lead else b""
        (decided,) = _unpacked(self._passed_on(word))
        found: Result = decided
        return found

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all rows, in their order. All rows are to call it."""
        if self.alone:
            return [value]
        word = _packed([value])
        size = max(int(one) for one in self._collected(torch.tensor([len(word)])))
        padded = torch.zeros(_LENGTH + size, dtype=torch.uint8)
        _write(padded, word)
        return [_unpacked(_read(one))[0] for one in self._collected(padded)]

    def any(self, flag: bool) -> bool:
        """Return whether the flag is true at any row. All rows are to call it."""
        if self.alone:
            return flag
        found = torch.tensor([int(flag)])
        self._bounded(lambda: dist.all_reduce(found, dist.ReduceOp.MAX))
        return bool(found.item())

    def together(self, act: Callable[[], Result]) -> Result:
        """Act at each row; if it fails at one, it fails at all. All rows are to call it.

        Raises:
            CrewError: another row failed, and this one did not.
        """
        if self.alone:
            return act()
        failure: GossipError | None = None
        result: Result | None = None
        try:
            result = act()
        except GossipError as error:
            failure = error
        said = self.gather("" if failure is None else f"{type(failure).__name__}: {failure}")
        if failure is not None:
            raise failure
        for row, text in enumerate(said):
            if text:
                raise CrewError(f"row {row} of replica {self.replica} failed, so its whole crew ends: {text}")
        found: Any = result
        return found  # type: ignore[no-any-return]

    # Values

    def group(self, rows: Sequence[int]) -> dist.ProcessGroup:
        """Return the process group of some rows. All rows are to call it, the others too."""
        # Without a timeout torch would take half an hour, whatever the crew's own is.
        made: dist.ProcessGroup = dist.new_group(list(rows), timeout=self._limit)
        return made

    def share_slices(self, whole: torch.Tensor, own: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
        """Replace a vector that several rows hold by the slices that each of them gives.

        Args:
            whole: the vector.
            own: this row's slice of it; all have the same length.
            group: of the rows that hold it; None: all rows.
        """
        # As bytes: the backends differ in the dtypes that they know.
        content = own.clone().view(torch.uint8)
        slices = list(whole.view(torch.uint8).chunk(whole.numel() // own.numel()))
        self._bounded(lambda: dist.all_gather(slices, content, group))

    def take_first(self, whole: torch.Tensor, first: int, group: dist.ProcessGroup | None = None) -> None:
        """Replace a vector that several rows hold by that of the first of them."""
        self._bounded(lambda: dist.broadcast(whole.view(torch.uint8), first, group))

    # The end

    def close(self) -> None:
        """End the process group, if it is the crew's own."""
        self._mesh = None
        if self._made and dist.is_initialized():
            self._made = False
            dist.destroy_process_group()
        if self._interface is not None:
            (before,), self._interface = self._interface, None
            os.environ.pop(_INTERFACE, None)
            if before is not None:
                os.environ[_INTERFACE] = before

    # Messages

    def _passed_on(self, word: bytes) -> bytes:
        first = torch.zeros(_WORD, dtype=torch.uint8)
        _write(first, word[: _WORD - _LENGTH], len(word))
        self._bounded(lambda: dist.broadcast(first, 0))
        size = int(first[:_LENGTH].view(torch.int32).item())
        if size <= _WORD - _LENGTH:
            return _read(first)
        rest = torch.zeros(_LENGTH + size, dtype=torch.uint8)
        _write(rest, word)
        self._bounded(lambda: dist.broadcast(rest, 0))
        return _read(rest)

    def _collected(self, own: torch.Tensor) -> list[torch.Tensor]:
        found = [torch.empty_like(own) for _ in range(self.rows)]
        self._bounded(lambda: dist.all_gather(found, own))
        return found

    def _bounded(self, exchange: Callable[[], Any]) -> None:
        """Exchange; torch's own errors about a lost process become one that names the crew."""
        try:
            exchange()
        except RuntimeError as error:
            raise self.loss(error) or CrewError(
                f"row {self.row} of replica {self.replica} cannot go on with its crew: {first_line(error)}"
            ) from error

    def loss(self, error: BaseException | None) -> CrewError | None:
        """Return what an error says about this crew; None if it is about something else.

        The script's own code, such as FSDP's, raises torch's errors when a row is gone. They come from several places,
        and no class of their own tells them apart.
        """
        if error is None or self.alone or isinstance(error, CrewError):
            return error if isinstance(error, CrewError) else None
        text = str(error)
        of_torch = isinstance(error, dist.DistError) or any(mark in text for mark in _BACKENDS)
        if not isinstance(error, RuntimeError) or not of_torch:
            return None
        if any(mark in text.lower() for mark in _SILENT):
            why = f"it did not answer within {self._timeout:g} s (--inner-timeout)"
        else:
            why = "its connection was closed, and its own log says why it ended"
        return CrewError(
            f"row {self.row} of replica {self.replica} lost another row of its crew, so the replica ends: {why}"
        )


def backend_for(device: torch.device) -> str:
    """Return the backends of a crew's process group: decisions go over the CPU in any case."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def first_line(error: BaseException) -> str:
    """Return the first line of an error, cut to a length that a sentence can take."""
    return f"{(str(error).splitlines() or [type(error).__name__])[0]:.200}"


def _packed(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def _unpacked(word: bytes) -> list[Any]:
    found: list[Any] = msgpack.unpackb(word, strict_map_key=False)
    return found


def _write(target: torch.Tensor, word: bytes, size: int | None = None) -> None:
    target[:_LENGTH].view(torch.int32)[0] = len(word) if size is None else size
    if word:
        target[_LENGTH : _LENGTH + len(word)] = torch.frombuffer(bytearray(word), dtype=torch.uint8)


def _read(source: torch.Tensor) -> bytes:
    size = int(source[:_LENGTH].view(torch.int32).item())
    return bytes(source[_LENGTH : _LENGTH + size].tolist())
