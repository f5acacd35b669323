"""The whole state of a replica as bytes, for a peer whose replica must become bit-identical.

The state has the parameters and buffers, including frozen ones; the optimizer; the other objects that were named at
`attach`, such as schedulers; and the step. As in a checkpoint, nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgpack
import torch
import xxhash
from safetensors.torch import load, save

from peers.state.snapshot import CheckpointSnapshot, FrozenSnapshot, freeze, thaw
from peers.state.state_dicts import flatten, unflatten
from peers.state.storable import StateError

__all__ = ["WholeState"]


class _Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class WholeState:
    """The objects that belong to a replica."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, also: Mapping[str, _Stateful]) -> None:
        self._model = model
        self._others: dict[str, Any] = {"optimizer": optimizer, **{f"also.{name}": one for name, one in also.items()}}

    def encode(self, step: int) -> bytes:
        """Return the whole state, at a step."""
        tensors = {f"model.{name}": tensor.detach() for name, tensor in self._named()}
        snapshot = CheckpointSnapshot(tensors, {"step": step, "others": {}})
        for name, one in self._others.items():
            more, snapshot.extra["others"][name] = flatten(one.state_dict(), name)
            snapshot.tensors.update(more)
        frozen = freeze(snapshot)
        encoded: bytes = msgpack.packb([frozen.rest, save(frozen.tensors)])
        return encoded

    def decode(self, encoded: bytes) -> int:
        """Take over the result of another peer's `encode`, of the same model; return the step."""
        rest, tensors = msgpack.unpackb(encoded)
        snapshot = thaw(FrozenSnapshot(load(tensors), rest))
        with torch.no_grad():
            for name, tensor in self._named():
                found = snapshot.tensors.get(f"model.{name}")
                if found is None or found.shape != tensor.shape or found.dtype != tensor.dtype:
                    sent = "nothing" if found is None else f"{found.dtype} {tuple(found.shape)}"
                    raise StateError(
                        f"{name} is {tensor.dtype} {tuple(tensor.shape)} here, but another peer sent {sent}; all peers "
                        "must have the same model"
                    )
                tensor.copy_(found)
        for name, one in self._others.items():
            if name in snapshot.extra["others"]:
                one.load_state_dict(unflatten(snapshot.tensors, snapshot.extra["others"][name], name))
        step: int = snapshot.extra["step"]
        return step

    def seal(self, step: int) -> int:
        """Return a hash of the whole state, for `gossip.events.Synchronize`."""
        return xxhash.xxh3_64_intdigest(self.encode(step)) >> 11 or 1

    def _named(self) -> list[tuple[str, torch.Tensor]]:
        return [*self._model.named_parameters(), *self._model.named_buffers()]
