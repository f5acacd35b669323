"""slowmo and noloco against their formulas, in dense double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lockstep import RATE, STEPS, N, Vectors, assert_same, gradients, heavy, mixing, run, start
from torch import nn

from gossip.policies.policy import Outer
from peers import Peer
from peers.methods.outer import OuterMomentum
from peers.model.replica import Replica


def slowmo(topology: str, h: int, beta: float, alpha: float, momentum: float = 0.0) -> np.ndarray:
    """Return each step's values: h steps of SGD, a turn of mixing, and the outer step of the paper."""
    z, buffer, turn, trace = start(), np.zeros_like(start()), 0, []
    slow, u = z.copy(), np.zeros_like(z)
    for step in range(1, STEPS + 1):
        buffer = momentum * buffer + gradients(z)
        z = z - RATE * buffer
        if step % h == 0:
            z = mixing(topology, turn) @ z
            turn += 1
            u = beta * u + (slow - z)
            z = slow - alpha * u
            slow = z.copy()
        trace.append(z)
    return np.stack(trace)


def noloco(topology: str, h: int, mu: float, eta: float, momentum: float = 0.0) -> np.ndarray:
    """Return each step's values, with both terms of the paper: the pair's mean move, and that of the slow weights."""
    theta, buffer, turn, trace = start(), np.zeros_like(start()), 0, []
    phi, m = theta.copy(), np.zeros_like(theta)
    for step in range(1, STEPS + 1):
        buffer = momentum * buffer + gradients(theta)
        theta = theta - RATE * buffer
        if step % h == 0:
            pairs = mixing(topology, turn)
            assert set(np.unique(pairs)) <= {0.0, 0.5, 1.0}
            turn += 1
            m = mu * m + eta * (pairs @ (theta - phi)) + eta * (pairs @ phi - phi)
            phi = phi + m
            theta = phi.copy()
        trace.append(theta)
    return np.stack(trace)


@pytest.mark.parametrize(("topology", "h"), [("one-peer-exponential", 4), ("ring", 1)])
def test_slowmo_is_its_formula(topology: str, h: int) -> None:
    assert_same(run(f"slowmo:h={h},beta=0.6,alpha=0.9", topology), slowmo(topology, h, 0.6, 0.9))


def test_slowmo_leaves_the_optimizers_own_momentum_alone() -> None:
    found = run("slowmo:h=5", make=heavy)
    assert_same(found, slowmo("one-peer-exponential", 5, 0.3, 1.0, momentum=0.9))


@pytest.mark.parametrize(("topology", "h"), [("random-matching", 3), ("one-peer-hypercube", 8)])
def test_noloco_is_its_formula(topology: str, h: int) -> None:
    assert_same(run(f"noloco:h={h},mu=0.4,eta=0.6", topology), noloco(topology, h, 0.4, 0.6))


def test_noloco_leaves_the_optimizers_own_momentum_alone() -> None:
    found = run("noloco:h=5,mu=0.4,eta=0.6", "random-matching", make=heavy)
    assert_same(found, noloco("random-matching", 5, 0.4, 0.6, momentum=0.9))


def test_without_momentum_it_is_local() -> None:
    expected = run("local:h=4,tau=0", steps=20)
    assert_same(run("slowmo:h=4,beta=0,alpha=1", steps=20), expected)


def test_a_share_of_the_shards_takes_its_outer_step_when_it_is_exchanged() -> None:
    """Half of the shards at a time: what has not been exchanged is where local steps leave it."""
    share = {"share": 0.5, "steps": 12}
    assert_same(run("slowmo:h=3,beta=0,alpha=1", **share), run("local:h=3,tau=0", **share))
    slow, plain = run("slowmo:h=3", **share), run("local:h=3,tau=0", **share)
    np.testing.assert_allclose(slow[:5], plain[:5], rtol=1e-9, err_msg="the first outer step of all changes nothing")
    moved = ~np.isclose(slow[8], plain[8], rtol=1e-9).all(axis=0)
    assert 0 < moved.sum() < moved.size, "the third exchange is the second of the shards that came first"


def test_what_is_mixed_and_not_trained_is_mixed_only() -> None:
    """Statistics have no direction: a variance that overshoots becomes negative."""
    kept: list[tuple[int, np.ndarray]] = []

    def look(peer: Peer, model: Vectors) -> None:
        kept.append((peer.step, model.seen.numpy().copy()))

    run("slowmo:h=2,beta=0.9,alpha=2", steps=12, after=look)
    for step, seen in kept:
        assert 0 <= seen.min() <= seen.max() <= (N - 1) * step
    total = sum(seen[0] for step, seen in kept if step == 12)
    assert total == pytest.approx(12 * sum(range(N)), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_its_momentum_in_single(dtype: torch.dtype) -> None:
    """Moves too small for the values themselves to show are not lost: in the momentum they add up."""
    model = nn.Linear(64, 1, bias=False).to(dtype)
    nn.init.ones_(model.weight)
    replica = Replica(model)
    method = OuterMomentum(Outer(0.5, 1.0), replica, torch.optim.SGD(model.parameters(), lr=1.0))
    method.start()
    reference, u = np.ones(64), np.zeros(64)
    for _ in range(8):
        with torch.no_grad():
            model.weight.sub_(2.0**-7)
        before = reference
        method.exchanged({0})
        u = 0.5 * u + 2.0**-7
        reference = before - u
    assert method.state_dict()["momentum"][0].dtype == torch.float32
    found = model.weight.detach().double().numpy()
    np.testing.assert_allclose(found, reference[None], atol=8 * torch.finfo(dtype).eps)


def test_a_group_that_is_added_later_takes_part() -> None:
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    optimizer = torch.optim.SGD(model[0].parameters(), lr=1.0)
    replica = Replica(model)
    method = OuterMomentum(Outer(0.0, 2.0), replica, optimizer)
    method.start()
    method.exchanged({0})
    optimizer.add_param_group({"params": model[1].parameters()})
    before = model[1].weight.detach().clone()
    with torch.no_grad():
        model[1].weight.add_(1.0)
    method.exchanged({0})
    torch.testing.assert_close(model[1].weight.detach(), before + 2.0)


def test_an_empty_parameter_takes_nobodys_place() -> None:
    model = nn.ParameterList([torch.ones(3), torch.ones(0), torch.ones(5)])
    replica = Replica(model)
    method = OuterMomentum(Outer(0.0, 2.0), replica, torch.optim.SGD(reversed(list(model)), lr=1.0))
    method.start()
    with torch.no_grad():
        for parameter in model:
            parameter.add_(1.0)
    method.exchanged({0})
    assert [parameter.tolist() for parameter in model] == [[3.0] * 3, [], [3.0] * 5]


@pytest.mark.parametrize("topology", ["bidirectional-ring", "complete"])
def test_slowmo_by_differences_is_the_same_formula(topology: str) -> None:
    """Where the codec takes nothing off, estimates are what they estimate, and all the way is gone."""
    found = run("slowmo:h=4,beta=0.6,alpha=0.9,differences=true", topology)
    assert_same(found, slowmo(topology, 4, 0.6, 0.9))
