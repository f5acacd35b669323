"""The whole state of a replica as bytes, for a peer whose replica must become bit-identical.

The state has the trained parameters and all buffers; the optimizer; the other objects that were named at `attach`, such
as schedulers; and the step. As in a checkpoint, nothing is ever unpickled.

Frozen parameters are not part of it: they were made equal when the peers came together, block by block. One that has
changed all the same since then, such as the slow copy of a model that a script averages by hand, is part of it. What an
optimizer keeps for parameters that it does not train stays at home as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgpack
import torch
import xxhash
from safetensors.torch import load, save

from peers.model.rest import digest
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
        self._optimizer = optimizer
        #: The frozen parameters as they were when all had the same.
        self._frozen = {name: digest(one) for name, one in model.named_parameters() if not one.requires_grad}
        self._others: dict[str, Any] = {"optimizer": optimizer, **{f"also.{name}": one for name, one in also.items()}}

    def encode(self, step: int, instead: Mapping[int, torch.Tensor] = MappingProxyType({})) -> bytes:
        """Return the whole state, at a step.

        Args:
            step: the number of steps made.
            instead: other values for some parameters, by their ``id``.
        """
        tensors = {
            f"model.{name}": instead.get(id(tensor), tensor).detach()
            for name, tensor in self._named()
            if not self._unchanged(name, tensor)
        }
        snapshot = CheckpointSnapshot(tensors, {"step": step, "others": {}})
        for name, one in self._others.items():
            state = self._optimizer_state() if one is self._optimizer else one.state_dict()
            more, snapshot.extra["others"][name] = flatten(state, name)
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
                if found is None and name in self._frozen:
                    continue
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

    def _unchanged(self, name: str, tensor: torch.Tensor) -> bool:
        return name in self._frozen and digest(tensor) == self._frozen[name]

    def _optimizer_state(self) -> dict[str, Any]:
        """Return the state of the optimizer, without what it keeps for parameters that it does not train."""
        state = self._optimizer.state_dict()
        parameters = [one for group in self._optimizer.param_groups for one in group["params"]]
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        idle = {
            number
            for number, one in zip(numbers, parameters, strict=True)
            if not one.requires_grad and one.grad is None
        }
        return {**state, "state": {key: value for key, value in state["state"].items() if key not in idle}}

    def _named(self) -> list[tuple[str, torch.Tensor]]:
        return [*self._model.named_parameters(), *self._model.named_buffers()]
