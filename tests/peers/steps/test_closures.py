"""``optimizer.step(closure)``: the gradients that the closure computes are those that count, whatever the algorithm."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from swarms import LONGEST, patient, swarm
from test_gradient_averaging import RATE, SIZE, STEPS, Point, problem
from torch import nn

from gossip import presets
from gossip.errors import SettingsError
from peers import Peer


def closure_of(peer: Peer | int, model: Point, optimizer: torch.optim.Optimizer) -> Callable[[], torch.Tensor]:
    a, b = problem(peer if isinstance(peer, int) else peer.rank)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = 0.05 * (a @ model.at - b).square().sum()
        loss.backward()
        return loss

    return closure


def attached(peer: Peer, make: Callable[..., torch.optim.Optimizer]) -> tuple[Point, torch.optim.Optimizer]:
    model = Point(np.zeros(SIZE))
    optimizer = make(model.parameters())
    peer.attach(model, optimizer)
    return model, optimizer


class Outer(torch.optim.SGD):
    """A user's own, whose step is that of its base and a little more."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


@pytest.mark.parametrize("make", [torch.optim.SGD, Outer])
@pytest.mark.parametrize("named", [False, True])
def test_allreduce_averages_what_the_closure_computes_and_equals_the_dense_reference(make: Any, named: bool) -> None:
    torch.optim.SGD([torch.zeros(1)], lr=1.0)  # torch puts hooks into `step` of a class when the first is made

    def body(peer: Peer) -> bytes:
        model, optimizer = attached(peer, lambda ones: make(ones, lr=RATE, momentum=0.9))
        closure = closure_of(peer, model, optimizer)
        for step in range(1, STEPS + 1):
            own = closure()
            loss = optimizer.step(closure=closure) if named else optimizer.step(closure)
            assert torch.equal(loss, own), "the loss stays the peer's own"
            assert peer.step == step
        return model.at.detach().numpy().tobytes()

    results = swarm(3, body, presets.preset("loopback"), algorithm="allreduce")
    assert len(set(results)) == 1
    z, v = np.zeros(SIZE), np.zeros(SIZE)
    for _ in range(STEPS):
        problems = [[one.numpy() for one in problem(rank)] for rank in range(3)]
        v = 0.9 * v + np.mean([0.1 * a.T @ (a @ z - b) for a, b in problems], axis=0)
        z = z - RATE * v
    np.testing.assert_allclose(np.frombuffer(results[0]), z, rtol=1e-11, atol=1e-13)


def test_the_centre_of_a_parameter_server_gets_the_moves_of_closures_and_of_lbfgs() -> None:
    def body(peer: Peer) -> Any:
        make = torch.optim.SGD if peer.rank else torch.optim.LBFGS
        model, optimizer = attached(peer, lambda ones: make(ones, lr=0.01))
        start = model.at.detach().clone()
        turn.wait(LONGEST)
        for rank in (0, 1):
            if rank == peer.rank:
                optimizer.step(closure_of(peer, model, optimizer))
            turn.wait(LONGEST)
        assert not torch.equal(model.at.detach(), start)
        assert peer.consensus(timeout=LONGEST) == 0.0
        return model.at.detach().numpy().copy()

    turn = threading.Barrier(2)
    first, second = swarm(2, body, presets.preset("loopback"), algorithm="parameter-server")
    assert np.array_equal(first, second)
    expected = Point(np.zeros(SIZE))
    moves = np.zeros(SIZE)
    for rank, make in enumerate((torch.optim.LBFGS, torch.optim.SGD)):  # both from the same values
        with torch.no_grad():
            expected.at.zero_()
        optimizer = make(expected.parameters(), lr=0.01)
        optimizer.step(closure_of(rank, expected, optimizer))
        moves += expected.at.detach().numpy()
    np.testing.assert_allclose(first, moves, rtol=1e-11)


ALGORITHMS = [
    *("osgp", "sgp", "dpsgd", "adpsgd", "local:h=2", "slowmo", "noloco", "ssd", "easgd", "choco"),
    *("sgp:momentum=mixed", "sgp:momentum=quasi-global", "parameter-server", "allreduce"),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_closure_trains_to_the_last_bit_as_gradients_that_were_computed_before(algorithm: str) -> None:
    inputs = torch.randn(12, 8, 3, generator=torch.Generator().manual_seed(0))

    def trained(closures: bool) -> list[torch.Tensor]:
        def body(peer: Peer) -> list[torch.Tensor]:
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            peer.attach(model, optimizer)

            def closure(step: int) -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(inputs[step]).square().mean()
                loss.backward()
                return loss

            for step in range(len(inputs)):
                if closures:
                    optimizer.step(lambda step=step: closure(step))
                else:
                    closure(step)
                    optimizer.step()
            assert peer.step == len(inputs)
            return [one.clone() for one in model.state_dict().values()]

        return swarm(1, body, presets.preset("loopback"), algorithm=algorithm)[0]  # type: ignore[no-any-return]

    for one, other in zip(trained(True), trained(False), strict=True):
        assert torch.equal(one, other)


def test_who_evaluates_twice_or_never_is_refused_by_allreduce_and_lbfgs_by_name() -> None:
    class Twice(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            closure()
            return super().step(closure)

    class Never(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:  # noqa: ARG002
            return super().step()

    def body(peer: Peer) -> None:
        with pytest.raises(SettingsError, match="LBFGS computes gradients several times in a step"):
            attached(peer, torch.optim.LBFGS)
        model, optimizer = attached(peer, lambda ones: (Twice if peer.world_size == 1 else Never)(ones, lr=RATE))
        optimizer.step(closure_of(peer, model, optimizer))

    with pytest.raises(SettingsError, match="called its closure a second time in step 1"):
        swarm(1, body, presets.preset("loopback"), algorithm="allreduce")
    with pytest.raises(SettingsError, match="moved in step 1 without a call of its closure"):
        swarm(2, body, presets.preset("loopback"), algorithm="allreduce")


def test_lbfgs_gossips_once_a_step_and_the_replicas_agree_below_where_they_began() -> None:
    def body(peer: Peer) -> tuple[int, torch.Tensor]:
        model, optimizer = attached(peer, lambda ones: torch.optim.LBFGS(ones, lr=0.1, max_iter=4))
        for _ in range(10):
            # As in any step that takes longer than a round trip: a push that waits for an answer would be left out.
            assert peer._attached().session.driver.flush(LONGEST)
            optimizer.step(closure_of(peer, model, optimizer))
        peer.consensus()
        return peer.step, model.at.detach().clone()

    def loss(at: torch.Tensor) -> float:
        return sum(float((a @ at - b).square().sum()) for a, b in map(problem, range(2)))

    (steps, one), (_, other) = swarm(2, body, patient(), algorithm="sgp")
    assert steps == 10
    torch.testing.assert_close(one, other, rtol=2e-3, atol=2e-3)
    assert loss(one) < loss(torch.zeros(SIZE, dtype=torch.float64))


def test_a_closure_that_fails_leaves_the_step_out_and_the_next_one_counts() -> None:
    def body(peer: Peer) -> int:
        model, optimizer = attached(peer, lambda ones: torch.optim.SGD(ones, lr=RATE))
        with pytest.raises(ZeroDivisionError):
            optimizer.step(lambda: 1 / 0)
        assert peer.step == 0
        optimizer.step(closure_of(peer, model, optimizer))
        return peer.step

    assert swarm(2, body, presets.preset("loopback"), algorithm="allreduce") == [1, 1]


def test_fused_optimizers_whose_scales_differ_average_what_the_gradients_are() -> None:
    """A fused optimizer divides by the loss scale itself, and each peer has a scale of its own."""

    def body(peer: Peer) -> torch.Tensor:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0 if peer.rank else 2.0)
        peer.attach(model, optimizer)
        scaler.scale(model.weight.sum() * (3.0 if peer.rank else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        assert not hasattr(optimizer, "grad_scale")
        return model.weight.detach().clone()

    for found in swarm(2, body, presets.preset("loopback"), algorithm="allreduce"):
        assert found.item() == -2.0


def test_a_peer_without_any_gradient_counts_as_zero_and_moves_with_the_others() -> None:
    def body(peer: Peer) -> float:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        peer.attach(model, optimizer)
        if peer.rank:
            model.weight.sum().backward()
        optimizer.step()
        assert peer.step == 1
        return model.weight.item()

    assert swarm(2, body, presets.preset("loopback"), algorithm="allreduce") == [-0.5, -0.5]
