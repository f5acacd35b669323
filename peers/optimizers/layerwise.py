"""The base of layer-wise adaptive optimizers: the length of a parameter's step is proportional to its norm.

Each parameter (a layer's matrix or kernel) moves by lr times a *trust ratio*: its own norm over that of its update.
With large batches and rates the ratio of the two differs between layers by orders of magnitude. Without the trust ratio
the worst layer would limit the rate of all.

Norms, states and updates are computed in float32 (float64 for float64 parameters), even for half precision: squares in
half precision are inaccurate, and moving averages do not change.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, overload

import torch
from torch.optim.optimizer import Optimizer, ParamsT

from gossip.errors import SettingsError

__all__ = ["Layerwise", "at_least", "trust_ratio"]


class Layerwise(Optimizer):
    """A loop over parameters; subclasses define the move of one parameter."""

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        at_least(0, lr=float(defaults["lr"]), weight_decay=defaults["weight_decay"])
        super().__init__(params, defaults)

    @abstractmethod
    def _move(
        self, values: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any], *, plain: bool
    ) -> None:
        """Move one parameter's values in place. If ``plain``, without weight decay and trust ratio."""

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step; parameters without a gradient do not move.

        Args:
            closure: evaluates the model again and returns the loss.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                if param.grad.is_sparse or param.is_complex():
                    raise SettingsError(
                        f"{type(self).__name__} needs dense real gradients, not a gradient of {param.grad.dtype} in "
                        f"{param.grad.layout}"
                    )
                kind = torch.promote_types(param.dtype, torch.float32)
                values = param.to(kind)  # the parameter itself, if it has this dtype
                plain = group["exclude_vectors"] and param.ndim <= 1
                self._move(values, param.grad.to(kind), self.state[param], group, plain=plain)
                if values is not param:
                    param.copy_(values)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the result of `state_dict`, with the moments in their own precision.

        torch's own method rounds them to the precision of the parameters, and a resumed run would then differ.
        """
        super().load_state_dict(state_dict)
        keys = [key for group in state_dict["param_groups"] for key in group["params"]]
        params = [param for group in self.param_groups for param in group["params"]]
        for key, param in zip(keys, params, strict=True):
            kind = torch.promote_types(param.dtype, torch.float32)
            for name, value in state_dict["state"].get(key, {}).items():
                if torch.is_tensor(value) and value.is_floating_point():
                    self.state[param][name] = value.detach().to(device=param.device, dtype=kind, copy=True)


def trust_ratio(values: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    """Return the norm of the values over that of their update; 1 if either is 0. The result stays on the device."""
    one, other = torch.linalg.vector_norm(values), torch.linalg.vector_norm(update)
    return torch.where((one > 0) & (other > 0), one / other, torch.ones_like(one))


def at_least(least: float, **settings: float) -> None:
    """Raise a `SettingsError` for settings that are smaller, or NaN."""
    for name, value in settings.items():
        if not least <= value < float("inf"):
            raise SettingsError(f"{name} must be at least {least:g}, not {value}")
