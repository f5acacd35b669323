"""LARS and LAMB against dense references in float64, and what every optimizer has to put up with."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gossip.errors import SettingsError
from peers.optimizers import LAMB, LARS
from peers.state.state_dicts import flatten, unflatten

STEPS = 50
SHAPES = [(6, 5), (3, 2, 2, 2), (7,), ()]
MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "lars": lambda params: LARS(params, lr=0.5, momentum=0.9, weight_decay=1e-2, trust=0.02),
    "lars-nesterov": lambda params: LARS(params, lr=0.5, weight_decay=1e-2, trust=0.02, nesterov=True),
    "lars-all": lambda params: LARS(params, lr=0.5, weight_decay=1e-2, trust=0.02, exclude_vectors=False),
    "lars-no-momentum": lambda params: LARS(params, lr=0.5, momentum=0.0, trust=0.02),
    "lamb": lambda params: LAMB(params, lr=0.02, weight_decay=1e-2),
    "lamb-all": lambda params: LAMB(params, lr=0.02, betas=(0.8, 0.95), weight_decay=1e-2, exclude_vectors=False),
}


def parameters(dtype: torch.dtype, seed: int = 0) -> list[torch.nn.Parameter]:
    rng = np.random.default_rng(seed)
    return [torch.nn.Parameter(torch.tensor(rng.normal(size=shape)).to(dtype)) for shape in SHAPES]


def gradients(step: int) -> list[np.ndarray]:
    rng = np.random.default_rng([9, step])
    return [np.asarray(rng.normal(size=shape)) * 10.0**index for index, shape in enumerate(SHAPES)]


def give(params: list[torch.nn.Parameter], step: int) -> None:
    for param, gradient in zip(params, gradients(step), strict=True):
        param.grad = torch.tensor(gradient).to(param.dtype)


def ratio(one: float, other: float) -> float:
    return one / other if one > 0 and other > 0 else 1.0


def reference(name: str, start: list[np.ndarray]) -> list[np.ndarray]:
    """Return where the parameters end, by the formulas, one parameter and one step at a time."""
    ends = []
    for index, value in enumerate(start):
        w, m, v = value.copy(), np.zeros_like(value), np.zeros_like(value)
        plain = w.ndim <= 1 and "all" not in name
        decay = 0.0 if plain or name == "lars-no-momentum" else 1e-2
        for step in range(1, STEPS + 1):
            g = gradients(step)[index]
            if name.startswith("lars"):
                momentum = 0.0 if name == "lars-no-momentum" else 0.9
                size, length = float(np.linalg.norm(w)), float(np.linalg.norm(g))
                scale = 1.0 if plain or not size or not length else 0.02 * size / (length + decay * size)
                u = scale * (g + decay * w)
                m = momentum * m + u
                w = w - 0.5 * (u + momentum * m if "nesterov" in name else m)
            else:
                one, two = (0.8, 0.95) if "all" in name else (0.9, 0.999)
                m, v = one * m + (1 - one) * g, two * v + (1 - two) * g * g
                u = m / (1 - one**step) / (np.sqrt(v / (1 - two**step)) + 1e-6) + decay * w
                scale = 1.0 if plain else ratio(float(np.linalg.norm(w)), float(np.linalg.norm(u)))
                w = w - 0.02 * scale * u
        ends.append(w)
    return ends


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MAKERS)
def test_fifty_steps_end_where_the_formulas_do(name: str, dtype: torch.dtype) -> None:
    params = parameters(dtype)
    start = [param.detach().double().numpy().copy() for param in params]
    optimizer = MAKERS[name](params)
    for step in range(1, STEPS + 1):
        give(params, step)
        optimizer.step()
    tolerance = 1e-10 if dtype == torch.float64 else 2e-4
    for param, expected in zip(params, reference(name, start), strict=True):
        np.testing.assert_allclose(param.detach().double().numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MAKERS)
def test_half_precision_parameters_have_moments_of_float32_and_follow(name: str) -> None:
    half, single = (
        parameters(torch.bfloat16),
        [torch.nn.Parameter(p.detach().float()) for p in parameters(torch.bfloat16)],
    )
    one, other = MAKERS[name](half), MAKERS[name](single)
    for step in range(1, 6):
        give(half, step)
        for param, coarse in zip(single, half, strict=True):
            param.grad = coarse.grad.float()
        one.step()
        other.step()
    for param, expected in zip(half, single, strict=True):
        assert param.dtype == torch.bfloat16
        # Five roundings to 8 bits.
        torch.testing.assert_close(param.float(), expected.detach(), rtol=5 * 2.0**-8, atol=0.05)
        kept = [value for value in one.state[param].values() if torch.is_tensor(value)]
        assert all(value.dtype == torch.float32 for value in kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MAKERS)
def test_a_run_that_is_resumed_is_the_same_run(name: str, dtype: torch.dtype) -> None:
    params = parameters(dtype)
    optimizer = MAKERS[name](params)
    for step in range(1, 11):
        give(params, step)
        optimizer.step()
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "params": [p.detach() for p in params]}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    tensors, structure = flatten(optimizer.state_dict())
    for state in (saved["optimizer"], unflatten(tensors, structure)):
        again = [torch.nn.Parameter(value.clone()) for value in saved["params"]]
        resumed = MAKERS[name](again)
        resumed.load_state_dict(state)
        straight = [torch.nn.Parameter(p.detach().clone()) for p in params]
        whole = MAKERS[name](straight)
        for old, new in zip(params, straight, strict=True):
            whole.state[new] = {k: v.clone() if torch.is_tensor(v) else v for k, v in optimizer.state[old].items()}
        for step in range(11, 16):
            give(again, step)
            give(straight, step)
            resumed.step()
            whole.step()
        assert all(torch.equal(one, other) for one, other in zip(again, straight, strict=True))


@pytest.mark.parametrize("name", MAKERS)
def test_without_a_gradient_a_parameter_stays_and_has_no_state(name: str) -> None:
    params = parameters(torch.float32)
    params[1].requires_grad_(requires_grad=False)
    before = [param.detach().clone() for param in params]
    optimizer = MAKERS[name](params)
    give(params, 1)
    params[0].grad = params[1].grad = None
    optimizer.step()
    assert [torch.equal(old, new) for old, new in zip(before, params, strict=True)] == [True, True, False, False]
    assert params[0] not in optimizer.state
    give(params, 2)
    params[1].grad = None
    optimizer.step()
    assert not torch.equal(before[0], params[0])


@pytest.mark.parametrize("name", MAKERS)
def test_zeros_of_parameters_and_gradients(name: str) -> None:
    param = torch.nn.Parameter(torch.zeros(3, 3))
    optimizer = MAKERS[name]([param])
    param.grad = torch.zeros(3, 3)
    optimizer.step()
    assert not param.detach().any()
    param.grad = torch.ones(3, 3)
    optimizer.step()
    assert torch.isfinite(param).all()
    assert param.detach().all(), "a parameter that is 0 must be able to leave it"


@pytest.mark.parametrize("name", MAKERS)
def test_a_closure_is_called_with_gradients_and_its_loss_is_returned(name: str) -> None:
    param = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = MAKERS[name]([param])

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (param**2).sum()
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure).detach()) for _ in range(30)]
    assert losses[0] == 25.0
    assert losses[-1] < losses[0] * 0.9


@pytest.mark.parametrize("make", [LARS, LAMB])
def test_groups_have_their_own_settings(make: Callable[..., torch.optim.Optimizer]) -> None:
    one, two = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2, 2))
    optimizer = make([{"params": [one]}, {"params": [two], "lr": 0.0}], lr=0.1)
    one.grad, two.grad = torch.ones(2, 2), torch.ones(2, 2)
    optimizer.step()
    assert not torch.equal(one, torch.ones(2, 2))
    assert torch.equal(two, torch.ones(2, 2))


@pytest.mark.parametrize("make", [LARS, LAMB])
def test_a_rate_in_a_tensor(make: Callable[..., torch.optim.Optimizer]) -> None:
    ends = []
    for lr in (0.1, torch.tensor(0.1)):
        params = parameters(torch.float32)
        optimizer = make(params, lr=lr)
        give(params, 1)
        optimizer.step()
        ends.append(torch.cat([p.detach().reshape(-1) for p in params]))
    torch.testing.assert_close(*ends)


@pytest.mark.parametrize("make", [LARS, LAMB])
def test_sparse_gradients_are_refused(make: Callable[..., torch.optim.Optimizer]) -> None:
    table = torch.nn.Embedding(5, 3, sparse=True)
    optimizer = make(table.parameters())
    table(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(SettingsError, match="dense real gradients"):
        optimizer.step()


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (LARS, {"lr": -1.0}, "lr must be at least 0, not -1"),
        (LAMB, {"lr": float("nan")}, "lr must be at least 0, not nan"),
        (LARS, {"momentum": 1.0}, "momentum must be from 0 to below 1"),
        (LARS, {"momentum": 0.0, "nesterov": True}, "nesterov needs a momentum above 0, such as 0.9, not 0"),
        (LARS, {"trust": -1e-3}, "trust must be at least 0"),
        (LARS, {"weight_decay": -1.0}, "weight_decay must be at least 0"),
        (LAMB, {"betas": (0.9, 1.0)}, "betas must be two numbers"),
        (LAMB, {"betas": (0.9,)}, "betas must be two numbers"),
        (LAMB, {"eps": -1.0}, "eps must be at least 0"),
    ],
)
def test_settings_that_cannot_be_meant(make: Callable[..., Any], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        make([torch.nn.Parameter(torch.ones(2))], **settings)
