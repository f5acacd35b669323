"""``variance=swarm``: what adaptive optimizers divide by, against the formula, and for every variant of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lockstep import RATE, SIZE, STEPS, N, assert_same, gradients, mixing, run, start
from torch import nn

from gossip import policies
from gossip.errors import SettingsError
from peers.methods.choosing import fit
from peers.methods.method import Method, Methods
from peers.methods.swarm_variance import SwarmVariance
from peers.optimizers import LAMB

BETAS = 0.8, 0.95
EPS = 1e-8
DECAY = 0.1
TOPOLOGY = "one-peer-exponential"
Make = Callable[..., torch.optim.Optimizer]


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=RATE, betas=BETAS, eps=EPS, weight_decay=DECAY)


class Reference:
    """The formula in numpy: v' of gradients that come one after the other."""

    def __init__(self, peers: int, cap: bool = False, margin: float = 1.0) -> None:
        self.margin = margin
        self.peers, self.cap, self.seen = peers, cap, 0
        self.v = self.one = self.two = 0.0
        self.last = self.before = np.zeros(1)

    def divisor(self, g: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Return v', corrected for the first steps; ``mean``: the first moment, corrected."""
        beta = BETAS[1]
        self.seen += 1
        self.v = beta * self.v + (1 - beta) * g * g
        v = self.v / (1 - beta**self.seen)
        if self.seen > 2:
            self.one = beta * self.one + (1 - beta) * g * self.last
            self.two = beta * self.two + (1 - beta) * g * self.before
            one = self.one / (1 - beta ** (self.seen - 1))
            two = self.two / (1 - beta ** (self.seen - 2))
            chance = (1 + 2 / np.pi) * (1 - beta) / (1 + beta) * v * v
            e = np.sqrt(np.maximum(np.maximum(one * one, two * two) - chance, 0))
            e = np.minimum(3 * e, v)
            corrected = v / self.peers + (1 - 1 / self.peers) * e
            corrected = np.minimum(self.margin * corrected, v)
            if self.cap:
                corrected = np.maximum(corrected, mean * mean)
        else:
            corrected = v
        self.before, self.last = self.last, g
        return corrected


def dense(option: str) -> np.ndarray:
    """Return each step's values of AdamW over sgp with the swarm's second moment."""
    z, m, trace = start(), np.zeros_like(start()), []
    reference = Reference(N, cap=option == "mixed")
    for step in range(1, STEPS + 1):
        g = gradients(z)
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        mean = m / (1 - BETAS[0] ** step)
        scale = np.sqrt(reference.divisor(g, mean)) + EPS
        moved = z * (1 - RATE * DECAY) - RATE * mean / scale
        matrix = mixing(TOPOLOGY, step - 1)
        z = matrix @ moved
        if option == "inferred":
            scale = scale * (1 - BETAS[0] ** step)
            bound = np.maximum(np.abs(m), scale)
            m = np.clip(m - (z - moved) * scale / RATE / np.log2(N), -bound, bound)
        if option == "mixed":
            m = matrix @ m
        trace.append(z)
    return np.stack(trace)


def test_stale_parameters_have_a_margin() -> None:
    """Of one peer whose swarm has eight: the divisor is 1 / 0.6^2 times larger, or the peer's own if that is less."""
    model = nn.Linear(3, 2, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=BETAS, eps=EPS, weight_decay=0)
    _, method = fit(policies.parse("osgp"), model, optimizer, 1 << 20)
    reference = Reference(8, margin=1 / 0.6**2)
    mean = np.zeros((2, 3))
    for step in range(1, 40):
        g = noisy(step)[:6].reshape(2, 3)
        before = model.weight.detach().clone()
        model.weight.grad, model.bias.grad = g.clone(), torch.zeros(2, dtype=torch.float64)
        method.begin(True)
        method.evaluated(lambda: 8)
        optimizer.step()
        method.end()
        mean = BETAS[0] * mean + (1 - BETAS[0]) * g.numpy()
        corrected = mean / (1 - BETAS[0] ** step)
        move = corrected / (np.sqrt(reference.divisor(g.numpy(), corrected)) + EPS)
        np.testing.assert_allclose((before - model.weight).detach().numpy(), move, rtol=1e-9)


@pytest.mark.parametrize("momentum", ["own", "mixed", "inferred"])
def test_a_swarm_equals_the_formula(momentum: str) -> None:
    found = run(f"sgp:momentum={momentum}", TOPOLOGY, make=adamw)
    assert_same(found, dense(momentum))


def test_momentum_is_inferred_unless_users_say_otherwise() -> None:
    assert_same(run("sgp", TOPOLOGY, make=adamw), dense("inferred"))


def test_without_it_the_divisor_is_the_peers_own() -> None:
    z, m, v, trace = start(), np.zeros_like(start()), np.zeros_like(start()), []
    for step in range(1, STEPS + 1):
        g = gradients(z)
        m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
        divisor = np.sqrt(v / (1 - BETAS[1] ** step)) + EPS
        z = mixing(TOPOLOGY, step - 1) @ (z * (1 - RATE * DECAY) - RATE * m / (1 - BETAS[0] ** step) / divisor)
        trace.append(z)
    assert_same(run("sgp:variance=own", TOPOLOGY, make=adamw), np.stack(trace))


class Trainer:
    """One parameter of three kinds of signal, and an optimizer of it with the method."""

    def __init__(self, make: Make, peers: int = 8, mixed: bool = False, kind: torch.dtype = torch.float64) -> None:
        self.parameter = nn.Parameter(torch.linspace(-1, 1, 12, dtype=torch.float64).to(kind))
        self.optimizer = make([self.parameter])
        self.method = SwarmVariance(self.optimizer, mixed=mixed)
        self.peers = peers

    def step(self, gradient: torch.Tensor) -> None:
        self.parameter.grad = gradient.to(self.parameter.dtype)
        self.method.begin(True)
        self.method.evaluated(lambda: self.peers)
        self.optimizer.step()
        self.method.end()

    def moment(self) -> torch.Tensor:
        found: torch.Tensor = self.optimizer.state[self.parameter]["exp_avg_sq"]
        return found


def noisy(step: int) -> torch.Tensor:
    """Return a gradient: four elements of noise alone, four with a signal that stays, four with one that swings."""
    generator = torch.Generator().manual_seed(step)
    noise = torch.randn(12, generator=generator, dtype=torch.float64)
    swing = 1.0 if step % 2 else -1.0
    return noise + torch.tensor([0.0] * 4 + [2.0] * 4 + [2.0 * swing] * 4, dtype=torch.float64)


MAKERS: dict[str, Make] = {
    "Adam": lambda p, **how: torch.optim.Adam(p, lr=0.01, betas=BETAS, weight_decay=0.1, **how),
    "AdamW": lambda p, **how: torch.optim.AdamW(p, lr=0.01, betas=BETAS, **how),
    "amsgrad": lambda p, **how: torch.optim.AdamW(p, lr=0.01, betas=BETAS, amsgrad=True, **how),
    "NAdam": lambda p, **how: torch.optim.NAdam(p, lr=0.01, betas=BETAS, **how),
    "RAdam": lambda p, **how: torch.optim.RAdam(p, lr=0.01, betas=BETAS, weight_decay=0.1, **how),
    "LAMB": lambda p, **how: LAMB(p, lr=0.01, betas=BETAS, **how),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_optimizer_keeps_its_own_second_moment_and_alone_moves_as_ever(name: str) -> None:
    trainer, plain = Trainer(MAKERS[name], peers=1), nn.Parameter(torch.linspace(-1, 1, 12, dtype=torch.float64))
    stock = MAKERS[name]([plain])
    for step in range(30):
        trainer.step(noisy(step))
        plain.grad = noisy(step)
        stock.step()
        torch.testing.assert_close(trainer.parameter, plain, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(trainer.moment(), stock.state[plain]["exp_avg_sq"], rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", MAKERS)
def test_moves_are_longer_where_there_is_only_noise(name: str) -> None:
    """The divisor there is about sqrt(8) times smaller; a signal that stays or swings keeps its own."""
    alone, together = (Trainer(MAKERS[name], peers=peers) for peers in (1, 8))
    moved = torch.zeros(2, 12, dtype=torch.float64)
    for step in range(400):
        before = [one.parameter.detach().clone() for one in (alone, together)]
        for one in (alone, together):
            one.parameter.data.zero_()  # where moves were made to is not what is compared
            one.step(noisy(step))
        if step >= 200:
            moved += torch.stack([one.parameter.detach().abs() for one in (alone, together)])
        for one, place in zip((alone, together), before, strict=True):
            one.parameter.data.copy_(place)
    ratio = moved[1] / moved[0]
    if name == "amsgrad":  # the largest divisor of the past counts, and that was the peer's own in the first steps
        assert (ratio[:4] > 1.05).all(), ratio
        return
    assert ((ratio[:4] > 1.8) & (ratio[:4] < 8**0.5 + 0.1)).all(), ratio
    assert ((ratio[4:] < 1.35) & (ratio[4:] > 0.99)).all(), "and no move is shorter"


@pytest.mark.parametrize("name", ["Adam", "AdamW", "amsgrad"])
@pytest.mark.parametrize("how", [{"foreach": True}, {"fused": True}, {"foreach": False}])
def test_every_variant_of_torch_moves_alike(name: str, how: dict[str, bool]) -> None:
    one, other = Trainer(MAKERS[name]), Trainer(lambda p: MAKERS[name](p, **how))
    for step in range(40):
        one.step(noisy(step))
        other.step(noisy(step))
    torch.testing.assert_close(one.parameter, other.parameter, rtol=1e-9, atol=1e-12)


def test_gradients_that_the_optimizer_unscales_count_as_unscaled() -> None:
    """As `torch.amp.GradScaler` has it for fused optimizers."""
    plain, scaled = (Trainer(lambda p: MAKERS["AdamW"](p, fused=True), kind=torch.float32) for _ in range(2))
    scaled.optimizer.grad_scale = torch.tensor(1024.0)  # type: ignore[attr-defined]
    scaled.optimizer.found_inf = torch.tensor(0.0)  # type: ignore[attr-defined]
    for step in range(30):
        plain.step(noisy(step))
        scaled.step(noisy(step) * 1024)
    assert torch.equal(plain.parameter, scaled.parameter)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_nothing_becomes_infinite_or_nan(kind: torch.dtype, mixed: bool) -> None:
    """Gradients that are 0 for long, jump, and swing: rounding must not make a second moment negative."""
    trainer = Trainer(MAKERS["AdamW"], peers=64, mixed=mixed, kind=kind)
    generator = torch.Generator().manual_seed(5)
    for step in range(300):
        size = 10.0 ** float(torch.randint(-12, 4, (), generator=generator))
        gradient = torch.randn(12, generator=generator) * size * (torch.rand(12, generator=generator) < 0.3)
        before = trainer.parameter.detach().clone()
        trainer.step(gradient)
        assert torch.isfinite(trainer.parameter).all(), step
        assert (trainer.moment() >= 0).all()
        # Alone, Adam moves by at most lr (1 - beta1) / sqrt(1 - beta2); v / n allows sqrt(n) times that.
        longest = 0.01 * (1 - BETAS[0]) / (1 - BETAS[1]) ** 0.5 * 8 * 2 + 0.01 * float(before.abs().max())
        assert (trainer.parameter - before).abs().max() <= longest, step


@pytest.mark.parametrize("make", [MAKERS["LAMB"], lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.0))])
def test_moments_of_another_precision_and_without_memory(make: Make) -> None:
    """LAMB keeps moments of half precision in float32; with a second beta of 0 there is no mean to estimate by."""
    trainer = Trainer(make, kind=torch.bfloat16)
    for step in range(10):
        trainer.step(noisy(step))
        assert torch.isfinite(trainer.parameter).all()


def test_a_state_continues_where_it_was() -> None:
    whole, first = Trainer(MAKERS["AdamW"]), Trainer(MAKERS["AdamW"])
    for step in range(20):
        whole.step(noisy(step))
        first.step(noisy(step))
    second = Trainer(MAKERS["AdamW"])
    second.parameter.data.copy_(first.parameter)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.method.load_state_dict(first.method.state_dict())
    for step in range(20, 40):
        whole.step(noisy(step))
        second.step(noisy(step))
    assert torch.equal(whole.parameter, second.parameter)


def test_a_step_that_fails_leaves_the_second_moment_as_it_was() -> None:
    trainer = Trainer(MAKERS["AdamW"])
    for step in range(5):
        trainer.step(noisy(step))
    kept = trainer.moment().clone()
    trainer.parameter.grad = noisy(5)
    trainer.method.begin(True)
    trainer.method.evaluated(lambda: 8)
    assert not torch.equal(trainer.moment(), kept)
    trainer.method.begin(True)  # of the next step: the optimizer raised an error in this one
    expected = BETAS[1] * kept + (1 - BETAS[1]) * noisy(5) ** 2
    torch.testing.assert_close(trainer.moment(), expected, rtol=1e-12, atol=0)


def test_parameters_without_a_gradient_keep_their_history() -> None:
    trainer = Trainer(MAKERS["AdamW"])
    for step in range(5):
        trainer.step(noisy(step))
    seen = trainer.method.state_dict()["0"]["seen"]
    trainer.parameter.grad = None
    trainer.method.evaluated(lambda: 8)
    trainer.optimizer.step()
    trainer.method.end()
    assert trainer.method.state_dict()["0"]["seen"] == seen == 5


@pytest.mark.parametrize(
    ("algorithm", "make", "expected"),
    [
        ("sgp", MAKERS["AdamW"], Methods),
        ("sgp:momentum=own", MAKERS["AdamW"], SwarmVariance),
        ("osgp", MAKERS["LAMB"], SwarmVariance),
        ("adpsgd:momentum=mixed", MAKERS["NAdam"], Methods),
        ("sgp:variance=own", MAKERS["AdamW"], Method),
        ("sgp", lambda p: torch.optim.SGD(p, lr=0.1), Method),
        ("sgp", lambda p: torch.optim.Adamax(p, lr=0.1), Method),
        ("local", MAKERS["AdamW"], Method),
    ],
)
def test_which_algorithms_and_optimizers_have_it(algorithm: str, make: Make, expected: type) -> None:
    model = nn.Linear(3, 2)
    _, method = fit(policies.parse(algorithm), model, make(model.parameters()), 1 << 20)
    assert type(method) is expected


def test_what_is_refused() -> None:
    with pytest.raises(SettingsError, match="sgp: variance must be swarm or own, not theirs"):
        policies.parse("sgp:variance=theirs")
    model = nn.Linear(SIZE, 1)
    with pytest.raises(SettingsError, match=r"momentum=quasi-global needs torch\.optim\.SGD"):
        fit(policies.parse("sgp:momentum=quasi-global"), model, adamw(model.parameters()), 1 << 20)
    with pytest.raises(SettingsError, match="or Adam, AdamW, NAdam, RAdam or LAMB, but the optimizer is Adagrad"):
        fit(policies.parse("sgp:momentum=mixed"), model, torch.optim.Adagrad(model.parameters()), 1 << 20)
