"""State dicts of a spread model: the parts of one row as plain tensors, for a checkpoint, and back.

A row saves its own parts only, so no row ever needs the memory of the whole model. They come back into the same rows of
the same grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from peers.model.spread import how_spread, is_spread, local_part, spread_like

__all__ = ["own_parts", "placements_of", "spread_model_state", "spread_optimizer_state", "spread_otherwise"]


def placements_of(model: torch.nn.Module) -> dict[str, str]:
    """Return which part this row has of each tensor of a model that is spread."""
    return {name: how_spread(tensor) for name, tensor in model.state_dict().items() if is_spread(tensor)}


def spread_otherwise(saved: Mapping[str, str], model: torch.nn.Module) -> str | None:
    """Return the first tensor that the model spreads in another way than the saved one did, and both ways.

    Args:
        saved: what `placements_of` returned for the model that was saved.
        model: the model that takes over its values.
    """
    present = placements_of(model)
    for name in [*saved, *present]:
        if (before := saved.get(name)) != (now := present.get(name)):
            return f"{name} was {before or 'whole'}, and is {now or 'whole'}"
    return None


def own_parts(state: Any) -> Any:
    """Return a state with this row's part in the place of each tensor that is spread."""
    if isinstance(state, torch.Tensor):
        return local_part(state)
    if isinstance(state, dict):
        found = type(state)((key, own_parts(value)) for key, value in state.items())
        if hasattr(state, "_metadata"):
            found._metadata = state._metadata  # type: ignore[attr-defined]
        return found
    if type(state) in (list, tuple):
        return type(state)(own_parts(value) for value in state)
    return state


def spread_model_state(state: dict[str, Any], model: torch.nn.Module) -> dict[str, Any]:
    """Return the state that `own_parts` was made of, for a model that is spread in the same way."""
    for name, present in model.state_dict().items():
        if is_spread(present) and name in state:
            state[name] = spread_like(present, state[name])
    return state


def spread_optimizer_state(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state that `own_parts` was made of, for an optimizer of parameters that are spread in the same way."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, held in state["state"].items():
        if index >= len(parameters) or not is_spread(parameters[index]):
            continue
        parameter = parameters[index]
        for key, value in held.items():
            # Such as the moments; a number of steps is not spread.
            if isinstance(value, torch.Tensor) and value.dim() and value.shape == local_part(parameter).shape:
                held[key] = spread_like(parameter, value)
    return state
