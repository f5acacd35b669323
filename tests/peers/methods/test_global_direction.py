"""ssd against its formula, and where it has to be sgp to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lockstep import RATE, SIZE, STEPS, assert_same, gradients, heavy, mixing, run, start
from torch import nn

from gossip import policies
from peers.methods.global_direction import GlobalDirection
from peers.model.replica import Replica

TOPOLOGY = "one-peer-exponential"


def ssd(
    k: int,
    warmup: int,
    rate: Callable[[int], float] | None = None,
    momentum: float = 0.0,
    topology: str = TOPOLOGY,
) -> np.ndarray:
    """Return each step's values: d is what a step of the last periods moved the mixed z by, the last counting 1/4."""
    z, buffer, turn, trace = start(), np.zeros_like(start()), 0, []
    mixed, since, change, spent = z.copy(), 0.0, np.zeros_like(z), 0.0
    for step in range(1, STEPS + 1):
        lr = RATE if rate is None else rate(step - 1)
        exchanges = step <= warmup or (step - warmup) % k == 0
        buffer = momentum * buffer + gradients(z)
        move = -lr * buffer
        if not exchanges and spent:
            move = 0.5 * move + 0.5 * lr * change / spent
        z, since = z + move, since + lr
        if exchanges:
            z = mixing(topology, turn) @ z
            turn += 1
            change, spent = 0.75 * change + 0.25 * (z - mixed), 0.75 * spent + 0.25 * since
            mixed, since = z.copy(), 0.0
        trace.append(z)
    return np.stack(trace)


@pytest.mark.parametrize(("k", "warmup"), [(4, 10), (3, 0)])
def test_ssd_is_its_formula(k: int, warmup: int) -> None:
    assert_same(run(f"ssd:k={k},warmup={warmup}"), ssd(k, warmup))


def test_ssd_by_differences_is_the_same_formula() -> None:
    """Where the codec takes nothing off, estimates are what they estimate, and all the way is gone."""
    found = run("ssd:k=4,warmup=6,differences=true", "bidirectional-ring")
    assert_same(found, ssd(4, 6, topology="bidirectional-ring"))


def test_the_direction_goes_with_the_learning_rate() -> None:
    """The rate falls in the middle of a period, and the direction of the period before with it."""

    def rate(step: int) -> float:
        return RATE if step < 22 else RATE / 10

    found = run("ssd:k=5,warmup=5", rate=rate)
    assert_same(found, ssd(5, 5, rate))
    moves = np.abs(np.diff(found, axis=0)).max(axis=(1, 2))
    assert moves[22] < moves[20] / 3


def test_ssd_leaves_the_optimizers_own_momentum_alone() -> None:
    assert_same(run("ssd:k=4,warmup=6", make=heavy), ssd(4, 6, momentum=0.9))


@pytest.mark.parametrize("algorithm", ["ssd:k=1,warmup=0", "ssd:k=1,warmup=7", f"ssd:k=4,warmup={STEPS}"])
def test_without_local_steps_it_is_sgp_to_the_last_bit(algorithm: str) -> None:
    np.testing.assert_array_equal(run(algorithm, make=heavy), run("sgp", make=heavy))


def test_when_ssd_exchanges() -> None:
    policy = policies.parse("ssd:k=3,warmup=4")
    assert [step for step in range(1, 14) if policy.exchanges(step)] == [1, 2, 3, 4, 7, 10, 13]
    steps = [policy.step_of(turn) for turn in range(8)]
    assert steps == [0, 1, 2, 3, 4, 7, 10, 13], "a newcomer finds where the others are by their turns"


class Peers:
    """Replicas of which the moves are given and the mixing is exact: what remains is the rule itself."""

    def __init__(self, k: int, blend: float, n: int = 4, **group: Any) -> None:
        self.k = k
        self.models = [nn.Linear(SIZE, 1, bias=False).double() for _ in range(n)]
        self.methods = []
        for model in self.models:
            nn.init.zeros_(model.weight)
            method = GlobalDirection(blend, Replica(model), torch.optim.SGD(model.parameters(), lr=1.0, **group))
            method.start()
            self.methods.append(method)

    def period(self, moves: list[torch.Tensor]) -> tuple[torch.Tensor, float]:
        """Return how far the mean came in a period, per step, and how far apart all were before they were mixed."""
        before = self.models[0].weight.detach().clone()
        for step in range(1, self.k + 1):
            for model, method, move in zip(self.models, self.methods, moves, strict=True):
                method.begin(step == self.k)
                with torch.no_grad():
                    model.weight.add_(move)
                method.end()
        values = torch.stack([model.weight.detach() for model in self.models])
        mean = values.mean(0)
        apart = float((values - mean).norm())
        for model, method in zip(self.models, self.methods, strict=True):
            with torch.no_grad():
                model.weight.copy_(mean)
            method.exchanged({0})
        return (mean - before) / self.k, apart


def test_the_factors_keep_the_length_of_a_step_and_halve_the_drift() -> None:
    torch.manual_seed(0)
    common = torch.randn(1, SIZE, dtype=torch.float64)
    moves = [common + torch.randn(1, SIZE, dtype=torch.float64) for _ in range(4)]
    mean = torch.stack(moves).mean(0)
    k = 8
    plain, blended = Peers(k, 0.0), Peers(k, policies.parse("ssd").blend)
    for period in range(6):
        (far, apart), (farther, less) = plain.period(moves), blended.period(moves)
        torch.testing.assert_close(far, mean)
        torch.testing.assert_close(farther, mean)
        if period:
            # k - 1 moves of half the deviation, and the one with the exchange.
            assert less / apart == pytest.approx(((k - 1) / 2 + 1) / k)


def test_a_changed_mean_is_followed_within_a_few_periods() -> None:
    """A period's mean move is p d + (1 - p) u' with p = b (k - 1) / k, and d is the mean of the last few of them."""
    k = 5
    peers = Peers(k, 0.5)
    one, other = (torch.full((1, SIZE), value, dtype=torch.float64) for value in (1.0, -1.0))
    for _ in range(3):
        peers.period([one] * 4)
    p, d, seen, expected = 0.5 * (k - 1) / k, 1.0, 1 - 0.75**3, []
    for _ in range(12):
        expected.append(p * d - (1 - p))
        d = (0.75 * seen * d + 0.25 * expected[-1]) / (0.75 * seen + 0.25)
        seen = 0.75 * seen + 0.25
    found = [float(peers.period([other] * 4)[0][0, 0]) for _ in range(12)]
    assert found == pytest.approx(expected)
    assert found[-1] < -0.85


def test_what_neighbours_draw_a_peer_to_and_fro_by_is_hardly_repeated() -> None:
    """The exchange moves z by e and back again, and nobody moves by itself: no move of the swarm."""
    k, e = 4, 1.0
    peers = Peers(k, 0.5, n=1)
    (model,), (method,) = peers.models, peers.methods
    moved = []
    for period in range(20):
        before = model.weight.detach().clone()
        for step in range(1, k + 1):
            method.begin(step == k)
            method.end()
        moved.append(float((model.weight.detach() - before).abs().max()))
        with torch.no_grad():
            model.weight.copy_(torch.full_like(model.weight, e * (period % 2)))
        method.exchanged({0})
    # Of the last change alone, b (k - 1) / k of e would be repeated.
    assert max(moved[8:]) < 0.5 * (k - 1) / k * e / 4


def test_a_rate_of_zero_gives_no_direction() -> None:
    model = nn.Linear(3, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    method = GlobalDirection(0.5, Replica(model), optimizer)
    method.start()
    for exchanges in (True, False, True, False):
        before = model.weight.detach().clone()
        method.begin(exchanges)
        method.end()
        assert torch.equal(model.weight.detach(), before)
        if exchanges:
            method.exchanged({0})
