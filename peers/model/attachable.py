"""What can be attached: a plain model and the plain optimizer of it.

Much else looks like these and would train without a word, but without the other peers. It is refused here by name,
before anybody is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from gossip.errors import SettingsError
from peers.model.spread import is_fsdp
from peers.state.state_dicts import flatten

__all__ = ["check_model", "check_stateful", "check_trained", "foreign_parameters", "plain_optimizer"]

#: Where torch has the wrappers that spread one model over processes or devices.
_SPREADING = ("torch.nn.parallel", "torch.distributed.fsdp", "torch.distributed._composable")


def plain_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer whose step moves the values: wrappers that pass steps to their ``optimizer`` are left out.

    Some wrappers, such as accelerate's, are optimizers of torch too, but without hooks.
    """
    found = optimizer
    while not (isinstance(found, torch.optim.Optimizer) and "_optimizer_step_pre_hooks" in vars(found)):
        found = getattr(found, "optimizer", None)
        if found is None:
            raise SettingsError(
                f"optimizer: a {_full_name(type(optimizer))} is not a torch.optim.Optimizer, and it has none as its "
                "attribute optimizer: attach the optimizer of torch whose step() moves the parameters"
            )
    if type(found).__module__.startswith("torch.distributed"):
        raise SettingsError(
            f"optimizer: a {_full_name(type(found))} exchanges values with other processes itself: attach the "
            "optimizer that it was made of, and train with that"
        )
    return found


def check_model(model: Any) -> None:
    """Raise a `SettingsError` unless this is a plain module, which nothing else spreads over processes or devices."""
    if not isinstance(model, torch.nn.Module):
        raise SettingsError(f"model: a {_full_name(type(model))} is not a torch.nn.Module")
    for name, module in model.named_modules():
        for kind in type(module).__mro__ if not is_fsdp(module) else ():
            if kind.__module__.startswith(_SPREADING):
                where = f"model: its part {name}" if name else "model: it"
                raise SettingsError(
                    f"{where} is wrapped in {kind.__name__}, which spreads it over processes or devices itself: attach "
                    "the plain model, without a wrapper, and train with that. For a replica of several processes, use "
                    "gossip launch --grid, and fully_shard or parallelize_module over peer.crew.mesh"
                )


def check_trained(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, warn: Callable[[str], None], averages: bool
) -> None:
    """Raise a `SettingsError` if the optimizer has none of the model's parameters; warn if some are not in both.

    Args:
        model: the model.
        optimizer: its optimizer.
        warn: is called with a sentence that the user should read.
        averages: whether the algorithm averages gradients in the steps of this optimizer.
    """
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not any(id(parameter) in held for parameter in model.parameters()):
        raise SettingsError(
            f"optimizer: this {type(optimizer).__name__} holds none of the model's parameters, so its steps would "
            "train something else: make it from model.parameters(), after the last change of the model"
        )
    left = [name for name, one in model.named_parameters() if one.requires_grad and id(one) not in held]
    if left:
        other = "is not averaged" if averages else "is exchanged with the steps of this one"
        warn(
            f"the optimizer does not hold {left[0]}{_and_more(left)}: freeze with requires_grad_(False) what stays as "
            f"it is; what another optimizer moves {other}"
        )
    if foreign := foreign_parameters(model, optimizer):
        warn(foreign)


def foreign_parameters(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str | None:
    """Return a warning if the optimizer holds parameters that are not the model's."""
    own = {id(parameter) for parameter in model.parameters()}
    held = [one for group in optimizer.param_groups for one in group["params"]]
    foreign = [f"one of the shape {tuple(one.shape)}" for one in held if id(one) not in own]
    if not foreign:
        return None
    return (
        f"the optimizer holds parameters that are not the model's, {foreign[0]}{_and_more(foreign)}: they are not "
        "mixed; to mix them, attach a module that has all"
    )


def check_stateful(also: Mapping[str, Any]) -> None:
    """Raise a `SettingsError` or a `StateError` unless each object can be saved and restored."""
    for name, one in also.items():
        if not (callable(getattr(one, "state_dict", None)) and callable(getattr(one, "load_state_dict", None))):
            raise SettingsError(
                f"also[{name!r}] is a {_full_name(type(one))}, which has no state_dict and load_state_dict: give an "
                "object that has both, such as a scheduler"
            )
        flatten(one.state_dict(), f"also.{name}")


def _and_more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _full_name(kind: type[Any]) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
