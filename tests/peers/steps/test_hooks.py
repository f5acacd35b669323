"""Gossip enters around each step of the optimizer that moves the parameters, and around no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from peers.steps.hooks import StepHooks

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "sgd-fused": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    "adam-fused": lambda parameters: torch.optim.Adam(parameters, lr=0.1, fused=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True),
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=True),
    "adagrad-fused": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1, fused=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.1),
}


class Calls:
    """Notes when it is called, and what the parameter was then."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self._parameter = parameter
        self.seen: list[tuple[str, float]] = []

    def note(self, name: str) -> Callable[[], None]:
        return lambda: self.seen.append((name, float(self._parameter.detach())))


def hooked(make: Make) -> tuple[nn.Parameter, torch.optim.Optimizer, Calls, StepHooks]:
    parameter = nn.Parameter(torch.tensor(1.0))
    optimizer = make([parameter])
    calls = Calls(parameter)
    return parameter, optimizer, calls, StepHooks(optimizer, calls.note("before"), lambda: None, calls.note("after"))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_before_sees_the_old_values_and_after_the_new(name: str) -> None:
    parameter, optimizer, calls, _ = hooked(OPTIMIZERS[name])
    parameter.grad = torch.tensor(1.0)
    optimizer.step()
    assert [one for one, _ in calls.seen] == ["before", "after"]
    assert calls.seen[0][1] == 1.0
    assert calls.seen[1][1] == float(parameter.detach()) != 1.0


def test_an_optimizer_with_a_closure_steps_once() -> None:
    parameter, optimizer, calls, _ = hooked(lambda ones: torch.optim.LBFGS(ones, max_iter=5))
    asked = 0

    def closure() -> torch.Tensor:
        nonlocal asked
        asked += 1
        optimizer.zero_grad()
        loss = (parameter - 3) ** 2
        loss.backward()
        return loss

    assert optimizer.step(closure) is not None
    assert asked > 1
    assert [one for one, _ in calls.seen] == ["before", "after"]


def test_micro_steps_are_not_noticed() -> None:
    parameter, optimizer, calls, _ = hooked(OPTIMIZERS["sgd"])
    for micro in range(1, 9):
        (parameter**2).backward()
        if micro % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        assert len(calls.seen) == 2 * (micro // 4)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_that_the_scaler_leaves_out_is_not_noticed(name: str) -> None:
    parameter, optimizer, calls, _ = hooked(OPTIMIZERS[name])
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    taken = []
    for factor in (1.0, float("inf"), 1.0, float("nan"), 1.0):
        optimizer.zero_grad()
        scaler.scale(parameter * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        taken.append(len(calls.seen))
    assert taken == [2, 2, 4, 4, 6]
    values = [value for _, value in calls.seen]
    assert values[1] == values[2], "nothing moved in between"
    assert values[3] == values[4]


def test_removed_hooks_are_not_called() -> None:
    parameter, optimizer, calls, hooks = hooked(OPTIMIZERS["adam"])
    hooks.remove()
    parameter.grad = torch.tensor(1.0)
    optimizer.step()
    assert calls.seen == []


def test_hooks_of_the_users_own_go_on() -> None:
    parameter, optimizer, calls, _ = hooked(OPTIMIZERS["sgd"])
    own: list[str] = []
    optimizer.register_step_post_hook(lambda *_: own.append("own"))
    parameter.grad = torch.tensor(1.0)
    optimizer.step()
    assert own == ["own"]
    assert len(calls.seen) == 2


def test_of_a_step_within_a_step_only_the_outer_one_counts_also_after_one_that_failed() -> None:
    class Own(torch.optim.SGD):
        fails = False

        def step(self, closure: Callable[[], float] | None = None) -> float | None:
            found = super().step(closure)
            if self.fails:
                raise ZeroDivisionError
            return found

    torch.optim.SGD([torch.zeros(1)], lr=1.0)  # with which torch puts the hooks into the step of SGD
    parameter, optimizer, calls, _ = hooked(lambda ones: Own(ones, lr=0.1))
    parameter.grad = torch.tensor(1.0)
    for fails in (False, True, False):
        optimizer.fails = fails  # type: ignore[attr-defined]
        if fails:
            with pytest.raises(ZeroDivisionError):
                optimizer.step()
        else:
            optimizer.step()
    assert [one for one, _ in calls.seen] == ["before", "after", "before", "before", "after"]
