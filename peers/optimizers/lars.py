"""LARS: SGD with momentum whose steps are scaled layer by layer.

You, Gitman, Ginsburg 2017, "Large batch training of convolutional networks", arXiv:1708.03888. With g the gradient and
w the parameter:

    u      = g + weight_decay * w
    ratio  = trust * |w| / (|g| + weight_decay * |w|)
    buffer = momentum * buffer + ratio * u
    w      = w - lr * buffer

The rate is not part of the buffer, as in torch's SGD and unlike in the paper: so a change of the rate takes effect at
once, while the paper's form needs Goyal's momentum correction. With a constant rate both are the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from gossip.errors import SettingsError
from peers.optimizers.layerwise import Layerwise, at_least

__all__ = ["LARS"]


class LARS(Layerwise):
    """SGD with momentum, scaled layer by layer: for convolutional networks and large batches."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        *,
        nesterov: bool = False,
        exclude_vectors: bool = True,
    ) -> None:
        """Optimize parameters or groups of them, each of which may have its own settings.

        Args:
            params: as for any optimizer.
            lr: the rate; it multiplies the trust ratio, so it is larger than SGD's by about 1 / trust times |g| / |w|.
            momentum: from 0 to below 1.
            weight_decay: added to the gradient, and part of the ratio.
            trust: the length of a layer's move in a step of rate 1, relative to its norm.
            nesterov: look ahead by one step of momentum.
            exclude_vectors: parameters of at most one dimension (biases, norm layers) are moved by plain SGD, without
                decay and ratio: their norms are small and mean little.
        """
        if not 0 <= momentum < 1:
            raise SettingsError(f"momentum must be from 0 to below 1, not {momentum}")
        if nesterov and not momentum:
            raise SettingsError(f"nesterov needs a momentum above 0, such as 0.9, not {momentum}")
        at_least(0, trust=trust)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "nesterov": nesterov,
            "exclude_vectors": exclude_vectors,
        }
        super().__init__(params, defaults)

    def _move(
        self, values: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any], *, plain: bool
    ) -> None:
        update = gradient
        if not plain:
            decay = group["weight_decay"]
            own, other = torch.linalg.vector_norm(values), torch.linalg.vector_norm(gradient)
            ratio = group["trust"] * own / (other + decay * own)
            ratio = torch.where((own > 0) & (other > 0), ratio, torch.ones_like(own))
            update = gradient.add(values, alpha=decay).mul_(ratio)
        if group["momentum"]:
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(update, memory_format=torch.preserve_format)
            buffer = state["momentum_buffer"].mul_(group["momentum"]).add_(update)
            update = update.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        values.sub_(update * group["lr"])
