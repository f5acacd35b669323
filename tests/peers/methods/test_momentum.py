"""What becomes of momentum buffers: own, mixed and quasi-global, against their formulas."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lockstep import (
    RATE,
    SIZE,
    STEPS,
    Make,
    N,
    Vectors,
    assert_same,
    gradient,
    gradients,
    heavy,
    loss_of,
    mixing,
    run,
    start,
)
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
    h: int = 1,
    rate: Callable[[int], float] | None = None,
    decay: float = 0.0,
    *,
    look_ahead: bool = False,
    alone: bool = False,
) -> np.ndarray:
    """Return each step's values of QG-DSGDm, with h local steps between two exchanges; alone: nobody mixes."""
    z, swarm_momentum, turn, trace = start(), np.zeros_like(start()), 0, []
    last, since, m = z.copy(), 0.0, swarm_momentum
    for step in range(1, STEPS + 1):
        lr = RATE if rate is None else rate(step - 1)
        g = gradients(z) + decay * z
        m = BETA * m + g
        z = z - lr * (g + BETA * m if look_ahead else m)
        since += lr
        if step % h == 0:
            z = z if alone else mixing(TOPOLOGY, turn) @ z
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


def test_choco_leaves_the_optimizers_own_momentum_alone() -> None:
    """Where the codec takes nothing off, estimates are what they estimate, and all the way is gone."""
    found = run("choco", "bidirectional-ring", make=heavy)
    assert_same(found, plain("own", topology="bidirectional-ring"))


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


@pytest.mark.parametrize("option", ["own", "mixed", "quasi-global"])
def test_osgp_that_waits_has_the_options_as_sgp_has_them(option: str) -> None:
    expected = quasi_global() if option == "quasi-global" else plain(option)
    assert_same(run(f"osgp:tau=0,momentum={option}", make=heavy), expected)


def in_turn(pairwise: bool, option: str, fraction: float, every: int) -> np.ndarray:
    """Return each step's values of peers in a ring that step one after the other; what is sent comes at once."""
    z, m, w = start(), np.zeros_like(start()), np.ones(N)
    last, swarm_momentum = z.copy(), np.zeros_like(z)
    boxes: list[list[tuple[int | None, float, np.ndarray, np.ndarray]]] = [[] for _ in range(N)]
    trace = []

    def give(rank: int, to: int, asker: int | None) -> None:
        weight = fraction * w[rank]
        w[rank] -= weight
        boxes[to].append((asker, weight, z[rank].copy(), m[rank].copy()))

    def merge(rank: int, weight: float, values: np.ndarray, buffer: np.ndarray) -> None:
        z[rank] = (w[rank] * z[rank] + weight * values) / (w[rank] + weight)
        if option == "mixed":
            m[rank] = (w[rank] * m[rank] + weight * buffer) / (w[rank] + weight)
        w[rank] += weight

    for step in range(1, STEPS + 1):
        for rank in range(N):
            g = gradient(rank, z[rank])
            box, boxes[rank] = boxes[rank], []
            for asker, *mass in box:
                if asker is None:
                    merge(rank, *mass)
            m[rank] = BETA * m[rank] + g
            z[rank] = z[rank] - RATE * m[rank]
            for asker, *mass in box:
                if asker is not None:  # there is but one in a ring, and it is answered after the move
                    give(rank, asker, None)
                    merge(rank, *mass)
            if step % every == 0:
                give(rank, (rank + 1) % N, rank if pairwise else None)
                if option == "quasi-global":
                    d = (last[rank] - z[rank]) / (every * RATE)
                    m[rank] = swarm_momentum[rank] = BETA * swarm_momentum[rank] + (1 - BETA) * d
                    last[rank] = z[rank]
        trace.append(z.copy())
    return np.stack(trace)


@pytest.mark.parametrize("option", ["own", "mixed", "quasi-global"])
@pytest.mark.parametrize(
    ("algorithm", "pairwise", "fraction", "every"),
    [("gossip-push", False, 0.5, 1), ("adpsgd", True, 0.5, 1), ("easgd:alpha=0.3,tau=2", True, 0.3, 2)],
)
def test_who_does_not_wait_has_the_options_too(
    algorithm: str, pairwise: bool, fraction: float, every: int, option: str
) -> None:
    moved = threading.Barrier(N)

    def body(peer: Peer) -> np.ndarray:
        model = Vectors(start()[0])
        optimizer = heavy(model.parameters())
        peer.attach(model, optimizer)
        # How far a move is stretched depends on whether an answer has arrived by then: not at all, here.
        peer._attached().steps.moves._stretch = lambda _: 1.0  # type: ignore[attr-defined]
        trace = []
        for step in range(STEPS * N):
            if step % N == peer.rank:
                # The others' parcels are answered, but the status may not show them yet: with an answer it does.
                peer._attached().replica.lend()
                peer._attached().session.driver.rest(merge=False)
                peer._attached().session.driver.resume()
                peer._attached().replica.reclaim()
                optimizer.zero_grad()
                loss_of(peer.rank, model.at()).backward()
                optimizer.step()
                assert peer._attached().session.driver.flush(LONGEST)
                trace.append(model.at().detach().numpy().copy())
            moved.wait(LONGEST)
        return np.stack(trace)

    spelled = f"{algorithm}{',' if ':' in algorithm else ':'}momentum={option}"
    found = swarm(N, body, patient(shard_bytes=64, weight_floor=0.0), algorithm=spelled, topology="ring")
    assert_same(np.stack(found, axis=1), in_turn(pairwise, option, fraction, every))


def test_gossip_pull_has_quasi_global_momentum() -> None:
    """Alone: when somebody else's mass comes is a matter of chance."""

    def body(peer: Peer) -> np.ndarray:
        model = Vectors(start()[0])
        optimizer = heavy(model.parameters())
        peer.attach(model, optimizer)
        trace = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss_of(0, model.at()).backward()
            optimizer.step()
            trace.append(model.at().detach().numpy().copy())
        return np.stack(trace)

    (found,) = swarm(1, body, algorithm="gossip-pull:tau=2,momentum=quasi-global")
    assert_same(found, quasi_global(2, alone=True)[:, 0])


@pytest.mark.parametrize(("option", "expected"), [("mixed", [0.5, 0.5]), ("own", [0.0, 1.0])])
def test_gossip_pull_mixes_buffers_if_asked_to(option: str, expected: list[float]) -> None:
    def body(peer: Peer) -> float:
        model = Vectors(np.zeros(SIZE))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=1.0)
        peer.attach(model, optimizer)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, float(peer.rank))
        optimizer.step()
        optimizer.zero_grad()
        assert peer.consensus(1e-6, LONGEST) <= 1e-6
        return float(optimizer.state[model.one]["momentum_buffer"].mean())

    found = swarm(2, body, patient(weight_floor=0.0), algorithm=f"gossip-pull:momentum={option}")
    assert found == pytest.approx(expected, abs=1e-4)


def test_how_much_is_sent() -> None:
    sent: dict[str, list[int]] = {}

    def count(option: str) -> Callable[[Peer, Vectors], None]:
        def look(peer: Peer, _: Vectors) -> None:
            sent.setdefault(option, []).append(peer._attached().replica.layout.total_bytes)

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
                peer._attached().session.driver.close()  # as if killed: no goodbye
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
    # Parcels in flight to its former life came back just now, some of them from before the training.
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
        (lambda ones: torch.optim.Adagrad(ones), "needs torch.optim.SGD with momentum.*but the optimizer is Adagrad"),
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
        assert peer._attachment is None

    swarm(1, body, algorithm=f"sgp:momentum={option}")
