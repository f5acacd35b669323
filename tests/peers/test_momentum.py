"""What becomes of momentum buffers: own, mixed and quasi-global, against their formulas."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lockstep import RATE, SIZE, STEPS, Make, Vectors, assert_same, gradients, heavy, mixing, run, start
from swarms import LONGEST, Meeting, patient, swarm, together

from gossip import presets
from gossip.errors import SettingsError
from peers import Peer
from peers.optimizers import LARS

TOPOLOGY = "one-peer-exponential"
BETA = 0.9


def nesterov(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=RATE, momentum=BETA, nesterov=True, weight_decay=0.01)


def plain(option: str, h: int = 1, topology: str = TOPOLOGY) -> np.ndarray:
    """Return each step's values of SGD with momentum, and with buffers that are mixed too or are not."""
    z, buffer, turn, trace = start(), np.zeros_like(start()), 0, []
    for step in range(1, STEPS + 1):
        buffer = BETA * buffer + gradients(z)
        z = z - RATE * buffer
        if step % h == 0:
            matrix = mixing(topology, turn)
            turn += 1
            z = matrix @ z
            if option == "mixed":
                buffer = matrix @ buffer
        trace.append(z)
    return np.stack(trace)


def quasi_global(
    h: int = 1, rate: Callable[[int], float] | None = None, decay: float = 0.0, *, look_ahead: bool = False
) -> np.ndarray:
    """Return each step's values of QG-DSGDm, with h local steps between two exchanges."""
    z, swarm_momentum, turn, trace = start(), np.zeros_like(start()), 0, []
    last, since, m = z.copy(), 0.0, swarm_momentum
    for step in range(1, STEPS + 1):
        lr = RATE if rate is None else rate(step - 1)
        g = gradients(z) + decay * z
        m = BETA * m + g
        z = z - lr * (g + BETA * m if look_ahead else m)
        since += lr
        if step % h == 0:
            z = mixing(TOPOLOGY, turn) @ z
            turn += 1
            swarm_momentum = BETA * swarm_momentum + (1 - BETA) * (last - z) / since
            m, last, since = swarm_momentum, z.copy(), 0.0
        trace.append(z)
    return np.stack(trace)


@pytest.mark.parametrize("option", ["own", "mixed"])
@pytest.mark.parametrize(
    ("algorithm", "topology", "h"), [("sgp", TOPOLOGY, 1), ("dpsgd", "one-peer-hypercube", 1), ("local", TOPOLOGY, 4)]
)
def test_own_buffers_stay_and_mixed_ones_are_mixed(algorithm: str, topology: str, h: int, option: str) -> None:
    more = "h=4,tau=0," if algorithm == "local" else ""
    found = run(f"{algorithm}:{more}momentum={option}", topology, make=heavy)
    assert_same(found, plain(option, h, topology))


def test_own_is_the_default() -> None:
    np.testing.assert_array_equal(run("sgp", make=heavy, steps=10), run("sgp:momentum=own", make=heavy, steps=10))


def test_quasi_global_momentum_is_its_formula() -> None:
    assert_same(run("sgp:momentum=quasi-global", make=heavy), quasi_global())


def test_quasi_global_momentum_with_local_steps_and_a_rate_that_changes() -> None:
    def rate(step: int) -> float:
        return RATE if step < 18 else RATE / 4

    assert_same(run("local:h=4,tau=0,momentum=quasi-global", make=heavy, rate=rate), quasi_global(4, rate))


def test_quasi_global_momentum_with_nesterov_and_weight_decay() -> None:
    assert_same(run("sgp:momentum=quasi-global", make=nesterov), quasi_global(decay=0.01, look_ahead=True))


@pytest.mark.parametrize("option", ["mixed", "quasi-global"])
@pytest.mark.parametrize("algorithm", ["osgp", "adpsgd"])
def test_who_does_not_wait_has_the_options_too(algorithm: str, option: str) -> None:
    found = run(f"{algorithm}:momentum={option}", make=heavy, steps=30)
    assert np.isfinite(found).all()
    assert np.abs(found[-1] - found[-1].mean(axis=0)).max() < 1.0


def test_how_much_is_sent() -> None:
    sent: dict[str, list[int]] = {}

    def count(option: str) -> Callable[[Peer, Vectors], None]:
        def look(peer: Peer, _: Vectors) -> None:
            sent.setdefault(option, []).append(peer._attached().core.mass.layout.total_bytes)

        return look

    for option in ("own", "quasi-global", "mixed"):
        run(f"sgp:momentum={option}", make=heavy, steps=2, after=count(option))
    # 16 and 8 numbers with the padding, the statistic's 8; and 16 and 8 more.
    assert {option: set(found) for option, found in sent.items()} == {
        "own": {256},
        "quasi-global": {256},
        "mixed": {448},
    }


@pytest.mark.parametrize(("option", "expected"), [("mixed", 2.0), ("quasi-global", 0.0), ("own", None)])
def test_a_newcomer_gets_mixed_buffers_and_starts_with_none_otherwise(option: str, expected: float | None) -> None:
    meeting = Meeting(2, algorithm=f"osgp:momentum={option}")
    died, over = threading.Event(), threading.Event()
    quick = presets.preset("loopback")

    def attached(peer: Peer) -> tuple[Vectors, torch.optim.Optimizer]:
        model = Vectors(np.zeros(SIZE))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.5)
        peer.attach(model, optimizer)
        return model, optimizer

    def stays(peer: Peer) -> None:
        """Train on gradients of 1, of which buffers become 2, for as long as the other one needs."""
        model, optimizer = attached(peer)
        assert died.wait(LONGEST)
        for _ in range(50):
            model.one.grad, model.two.grad = torch.ones_like(model.one), torch.ones_like(model.two)
            optimizer.step()
        died.clear()
        while not over.is_set():
            optimizer.step()

    def comes_back() -> float | None:
        try:
            with meeting.peer(1, quick) as peer:
                attached(peer)
                peer._attached().driver.close()  # as if killed: no goodbye
            died.set()
            while died.is_set():
                over.wait(0.01)
            with meeting.peer(1, quick, incarnation=1000) as peer:
                model, optimizer = attached(peer)
                buffer = optimizer.state[model.one].get("momentum_buffer")
                return None if buffer is None else float(buffer.mean())
        finally:
            over.set()

    trained, found = together([meeting.task(0, stays, quick), comes_back])
    assert trained is None, trained
    # What was on its way to its former life came back just now, some of it from before the training.
    assert found == (None if expected is None else pytest.approx(expected, abs=1.0 if expected else 0.0))


def test_buffers_that_the_user_loads_are_mixed_and_used() -> None:
    """`load_state_dict` of an optimizer makes new tensors; mixing the old ones would be mixing nothing."""
    end = threading.Barrier(2)

    def body(peer: Peer) -> tuple[float, bool]:
        model = Vectors(np.zeros(SIZE))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=1.0)
        peer.attach(model, optimizer)
        state = optimizer.state_dict()
        for one in state["state"].values():
            one["momentum_buffer"] = torch.full_like(one["momentum_buffer"], float(peer.rank))
        optimizer.load_state_dict(state)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        end.wait(LONGEST)
        buffer = optimizer.state[model.one]["momentum_buffer"]
        return float(buffer.mean()), bool((buffer == buffer[0]).all())

    assert swarm(2, body, patient(weight_floor=0.0), algorithm="sgp:momentum=mixed") == [(0.5, True), (0.5, True)]


@pytest.mark.parametrize("option", ["mixed", "quasi-global"])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda ones: torch.optim.Adam(ones), "is for torch.optim.SGD with momentum, and the optimizer is Adam"),
        (lambda ones: LARS(ones), "the optimizer is LARS; use momentum=own"),
        (lambda ones: torch.optim.SGD(ones, lr=0.1), "needs an SGD with momentum, such as 0.9"),
        (lambda ones: torch.optim.SGD(ones, lr=0.1, momentum=0.9, dampening=0.1), "without dampening"),
    ],
)
def test_other_optimizers_are_refused_before_anybody_is_waited_for(option: str, make: Make, said: str) -> None:
    def body(peer: Peer) -> None:
        model = Vectors(np.zeros(SIZE))
        with pytest.raises(SettingsError, match=said):
            peer.attach(model, make(model.parameters()))
        assert peer._engine is None

    swarm(1, body, algorithm=f"sgp:momentum={option}")
