"""The parameters that were frozen at `attach`, and must stay so: they are not mixed, so training one would be silent.

Each peer would move its own copy, and no exchange would bring the copies together again.
"""

from __future__ import annotations

import torch

from gossip.errors import SettingsError

__all__ = ["Frozen"]


class Frozen:
    """The parameters of one model that required no gradient at `attach`."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._parameters = {name: one for name, one in model.named_parameters() if not one.requires_grad}

    def check(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise a `SettingsError` if the optimizer is about to move one of them."""
        moved = [name for name, one in self._parameters.items() if one.requires_grad and one.grad is not None]
        if not moved:
            return
        held = {id(one) for group in optimizer.param_groups for one in group["params"]}
        for name in moved:
            if id(self._parameters[name]) in held:
                raise SettingsError(
                    f"{name} requires a gradient now, but was frozen at attach, so peers do not mix it and would train "
                    "it apart. Freeze it again, or save a checkpoint, let it require a gradient before attach and "
                    "begin a new run with these weights"
                )
