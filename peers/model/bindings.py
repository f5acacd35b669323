"""The tensors of a model stay where its replica laid them, whatever the script does to the model after `attach`.

If a script sets ``parameter.data`` or assigns a buffer anew, the values would no longer be in the flat vectors, and
nobody would notice: the peer would send old values and train others. New values of the same kind are therefore copied
to their place in the vectors. What cannot be copied is refused: another parameter, shape, dtype or device, and a frozen
parameter that is trained from now on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from gossip.errors import SettingsError
from peers.model.attachable import foreign_parameters
from peers.model.replica import Replica
from peers.model.spread import gather_parts, is_spread

__all__ = ["Bindings"]


class _Slot(NamedTuple):
    """Where a module has a tensor, and where that has its values."""

    owner: dict[str, Any]
    key: str
    name: str
    tensor: torch.Tensor
    #: The place in the flat vector, and its address.
    place: torch.Tensor
    address: int


class Bindings:
    """The tensors of one model that are mixed."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        replica: Replica,
        warn: Callable[[str], None],
    ) -> None:
        """Note where everything is, right after the replica was made of the model."""
        self._model, self._optimizer, self._warn = model, optimizer, warn
        self._slots = [slot for slot in _slots(model) if replica.place(slot.tensor) is not None]
        self._owners = [slot.owner for slot in self._slots]
        self._keys = [slot.key for slot in self._slots]
        self._tensors = [slot.tensor for slot in self._slots]
        self._addresses = _addresses(self._tensors)
        mixed = {id(slot.tensor) for slot in self._slots}
        self._frozen = [
            (name, one) for name, one in model.named_parameters() if id(one) not in mixed and not one.requires_grad
        ]
        #: All parameters that the model had when it was attached. They are kept, so that nothing else gets their ids.
        self._present = {id(one): one for one in model.parameters()}
        self._held = self._count()
        self._checks = 0

    def check_parameters(self) -> None:
        """Raise a `SettingsError` if the model has trained parameters that it did not have when it was attached."""
        gather_parts(self._model)  # or FSDP's whole parameters would look like new ones
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad and id(parameter) not in self._present:
                raise SettingsError(
                    f"{name} is another parameter than when the model was attached, or a new one, and would not be "
                    "mixed: finish the model before attach, layers and all"
                )

    def check(self) -> None:
        """Bring values that were put elsewhere back to their places; raise a `SettingsError` if they do not fit."""
        # Almost always all is in place, and this is done twice in each step: hence the loops that Python runs fastest.
        present = map(dict.get, self._owners, self._keys)
        if any(map(operator.is_not, present, self._tensors)) or self._addresses != _addresses(self._tensors):
            for slot in self._slots:
                found = slot.owner.get(slot.key)
                if found is not slot.tensor or found.data_ptr() != slot.address:
                    _bring_back(slot, found)
        # Layers are replaced seldom, and a walk over the model takes long: at the first checks, and then less and less.
        self._checks += 1
        if self._checks & (self._checks - 1) == 0:
            self.check_parameters()
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise SettingsError(
                    f"{name} was frozen when the model was attached and requires a gradient now, so it would be "
                    "trained but not mixed: unfreeze it before attach; the optimizer may get it later"
                )
        if self._held != (held := self._count()):
            self._held = held
            if foreign := foreign_parameters(self._model, self._optimizer):
                self._warn(foreign)

    def _count(self) -> int:
        return sum(len(group["params"]) for group in self._optimizer.param_groups)


def _addresses(tensors: list[torch.Tensor]) -> list[int]:
    return list(map(torch.Tensor.data_ptr, tensors))


def _slots(model: torch.nn.Module) -> Iterator[_Slot]:
    for prefix, module in model.named_modules():
        for owner in (module._parameters, module._buffers):
            for key, tensor in owner.items():
                # Values of a DTensor are copied with each exchange, wherever torch has them then.
                if tensor is not None and not is_spread(tensor):
                    name = f"{prefix}.{key}" if prefix else key
                    yield _Slot(owner, key, name, tensor, tensor.data, tensor.data_ptr())


@torch.no_grad()
def _bring_back(slot: _Slot, found: torch.Tensor | None) -> None:
    if found is None or (found is not slot.tensor and isinstance(slot.tensor, torch.nn.Parameter)):
        raise SettingsError(
            f"{slot.name} is {'gone' if found is None else 'another parameter'} since the model was attached, and what "
            "replaced it would not be mixed: finish the model before attach, and change values in place"
        )
    wanted = slot.place
    if (found.shape, found.dtype, found.device) != (wanted.shape, wanted.dtype, wanted.device):
        raise SettingsError(
            f"{slot.name} is {_described(found)} now and was {_described(wanted)} when the model was attached: move "
            "and convert the model before attach"
        )
    wanted.copy_(found)
    slot.tensor.data = wanted
    slot.owner[slot.key] = slot.tensor


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)} on {tensor.device}"
