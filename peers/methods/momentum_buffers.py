"""The momentum buffers of torch's SGD, and the first moments of Adam and its relatives, for algorithms that use them.

``momentum=mixed``: the buffers are gossiped like the parameters. They become part of the flat vectors, so they are
shards with weights, turns and mass, and a newcomer gets them with the parameters. This doubles the traffic. It helps
where the peers' data differ: a buffer that is not mixed keeps pulling towards its peer's own data after each exchange.

The buffers of SGD exist from `attach` on, as zeros, while SGD alone makes them with the first gradient. Without
dampening the result is the same. Adam makes its state with the first gradient, all of it at once, so its first moments
become shards right after that step.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from gossip.errors import SettingsError
from peers.methods.method import Method
from peers.methods.swarm_variance import is_adaptive
from peers.model.replica import Replica
from peers.optimizers import LAMB

__all__ = ["Buffers", "MixedMomentum", "refuse_momentum", "require_momentum", "zeros_for"]

_SGD_KEY, _ADAM_KEY = "momentum_buffer", "exp_avg"


def require_momentum(option: str, optimizer: torch.optim.Optimizer) -> None:
    """Raise a `SettingsError` unless the optimizer's momentum buffers have the meaning that the option needs."""
    if option == "mixed" and is_adaptive(optimizer):
        return
    if not isinstance(optimizer, torch.optim.SGD):
        also = ", or Adam, AdamW, NAdam, RAdam or LAMB" if option == "mixed" else ""
        raise SettingsError(
            f"momentum={option} needs torch.optim.SGD with momentum{also}, but the optimizer is "
            f"{type(optimizer).__name__}; use momentum=own"
        )
    for group in optimizer.param_groups:
        if not group["momentum"]:
            raise SettingsError(f"momentum={option} needs an SGD with momentum, such as 0.9; or use momentum=own")
        if group["dampening"]:
            raise SettingsError(f"momentum={option} needs an SGD without dampening; or use momentum=own")


def refuse_momentum(correction: float, optimizer: torch.optim.Optimizer) -> None:
    """Raise a `SettingsError` if the optimizer has momentum, which momentum correction applies to gradients already."""
    for group in optimizer.param_groups:
        betas = group.get("betas")
        first = betas[0] if isinstance(betas, tuple | list) and betas else 0.0
        momentum = group.get("momentum") or first
        if momentum:
            name = type(optimizer).__name__
            none = "momentum=0" if group.get("momentum") else "a first beta of 0"
            raise SettingsError(
                f"allreduce:correction={correction:g} applies momentum to the gradients already, and {name} would "
                f"apply {float(momentum):g} once more: use {none}, or leave correction out"
            )


class Buffers:
    """Keeps the optimizer's buffers in given memory."""

    def __init__(self, optimizer: torch.optim.Optimizer, tensors: Mapping[torch.Tensor, torch.Tensor]) -> None:
        """Bind the buffers.

        Args:
            optimizer: the owner of the buffers.
            tensors: the memory for the buffer of each parameter.
        """
        self._optimizer = optimizer
        self._tensors = tensors
        self._key = _ADAM_KEY if is_adaptive(optimizer) else _SGD_KEY
        self._held = self._count()
        self.bind()

    @torch.no_grad()
    def bind(self) -> bool:
        """Move loaded buffers into their memory: ``load_state_dict`` of an optimizer makes new tensors.

        Returns:
            Whether any had to be moved.
        """
        if self._held != (held := self._count()):
            raise SettingsError(
                f"{held} parameters are in the optimizer now, and {self._held} were when it was attached: the momentum "
                "of new ones would not be mixed; call add_param_group before attach, or use momentum=own"
            )
        moved = False
        for parameter, tensor in self._tensors.items():
            state = self._optimizer.state[parameter]
            if self._key == _ADAM_KEY and self._key not in state:
                continue
            found = state.get(self._key)
            if found is not tensor:
                if found is not None:
                    tensor.copy_(found)
                    moved = True
                state[self._key] = tensor
        return moved

    def _count(self) -> int:
        return sum(len(group["params"]) for group in self._optimizer.param_groups)


class MixedMomentum(Method):
    """Buffers that are shards. This method only keeps them in their memory."""

    def __init__(self, buffers: Buffers, replica: Replica) -> None:
        self._buffers = buffers
        self._replica = replica

    def begin(self, exchanges: bool) -> None:  # noqa: ARG002
        """Make the optimizer use the buffers that are mixed."""
        self._buffers.bind()

    def end(self) -> None:
        """Take over buffers that the optimizer has just made, before they are exchanged."""
        if self._buffers.bind():
            self._replica.take()  # the step has taken the values of a spread model already

    def optimizer_loaded(self) -> None:
        """Take over the loaded buffers before any other peer gets them."""
        self._buffers.bind()


def zeros_for(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return, by name, the parameters of the model that the optimizer trains, each with a buffer of zeros."""
    trained = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    exact = isinstance(optimizer, LAMB)  # it keeps moments in single precision at least
    return {
        name: (parameter, torch.zeros_like(parameter, dtype=_kind(parameter, exact), requires_grad=False))
        for name, parameter in model.named_parameters()
        if parameter in trained and parameter.requires_grad
    }


def _kind(parameter: torch.Tensor, exact: bool) -> torch.dtype:
    return torch.promote_types(parameter.dtype, torch.float32) if exact else parameter.dtype
