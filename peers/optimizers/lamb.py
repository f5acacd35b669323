"""LAMB: Adam whose steps are scaled layer by layer.

You et al. 2019, "Large batch optimization for deep learning: training BERT in 76 minutes", arXiv:1904.00962. With g the
gradient, w the parameter and t the step, from 1:

    m = beta1 * m + (1 - beta1) * g            v = beta2 * v + (1 - beta2) * g * g
    u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w
    w = w - lr * |w| / |u| * u
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from gossip.errors import SettingsError
from peers.optimizers.layerwise import Layerwise, at_least, trust_ratio

__all__ = ["LAMB"]


class LAMB(Layerwise):
    """Adam with decoupled weight decay, scaled layer by layer: for transformers and large batches."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        exclude_vectors: bool = True,
    ) -> None:
        """Optimize parameters or groups of them, each of which may have its own settings.

        Args:
            params: as for any optimizer.
            lr: the length of a layer's move in a step, relative to its norm.
            betas: the part of the two moments that is left after a step, each from 0 to below 1.
            eps: keeps the quotient finite if gradients are 0.
            weight_decay: added to the update, after the moments.
            exclude_vectors: parameters of at most one dimension (biases, norm layers) are moved by plain Adam, without
                decay and ratio: their norms are small and mean little.
        """
        if not (len(betas) == 2 and all(0 <= beta < 1 for beta in betas)):
            raise SettingsError(f"betas must be two numbers from 0 to below 1, not {betas}")
        at_least(0, eps=eps)
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "exclude_vectors": exclude_vectors,
        }
        super().__init__(params, defaults)

    def _move(
        self, values: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any], *, plain: bool
    ) -> None:
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(gradient, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(gradient, memory_format=torch.preserve_format)
        state["step"] += 1
        first, second = group["betas"]
        mean = state["exp_avg"].lerp_(gradient, 1 - first)
        square = state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        divisor = (square / (1 - second ** state["step"])).sqrt_().add_(group["eps"])
        update = (mean / (1 - first ** state["step"])).div_(divisor)
        if not plain:
            update.add_(values, alpha=group["weight_decay"])
            update.mul_(trust_ratio(values, update))
        values.sub_(update * group["lr"])
