"""Averages of moves that travel while their peers go on: the dense formula, deaths, stragglers, checkpoints, NaN."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from swarms import LONGEST, Meeting, swarm, together
from test_gradient_averaging import RATE, SIZE, Point, attached, descend, problem, quick

from gossip import presets
from gossip.net.promise import Promise
from gossip.policies.policy import Outer
from peers import Peer
from peers.methods.outer_average import OuterAverage
from peers.steps.outer_steps import OuterSteps


@pytest.fixture
def as_late_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every peer notice an average only when it has to wait for it: after tau steps, whatever the network does."""
    monkeypatch.setattr(Promise, "done", property(lambda _: False))


def steps_of(peer: Peer) -> OuterSteps:
    steps = peer._attached().steps
    assert isinstance(steps, OuterSteps)
    return steps


def common(peer: Peer) -> tuple[int, bytes]:
    """Return the number of averages, and the values that all have in common after the last one."""
    method: Any = peer._attached()._method
    return method.rounds, method._last[0].numpy().tobytes()


def bits(model: Point) -> bytes:
    return model.at.detach().numpy().tobytes()


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def reference(n: int, steps: int, h: int, tau: int, mu: float, eta: float, momentum: float) -> np.ndarray:
    """Return the values of all peers: an average is begun after h steps, and is there tau steps later."""
    z0, u, v, z = np.zeros(SIZE), np.zeros(SIZE), np.zeros((n, SIZE)), np.zeros((n, SIZE))
    sent: np.ndarray | None = None
    alone = 0

    def land() -> None:
        nonlocal z0, u, z, sent
        if sent is not None and alone >= tau:
            s = (z0 - sent).mean(axis=0)
            u = mu * u + s
            moved = z - sent
            z0, sent = z0 - eta * (s + mu * u), None
            z = z0 + moved

    for _ in range(steps):
        for rank in range(n):
            a, b = (one.numpy() for one in problem(rank))
            v[rank] = momentum * v[rank] + 0.1 * a.T @ (a @ z[rank] - b)
        z = z - RATE * v
        alone += 1
        land()
        if sent is None and alone >= h:
            sent, alone = z.copy(), 0
            land()
    return z


@pytest.mark.usefixtures("as_late_as_can_be")
@pytest.mark.parametrize(("h", "tau"), [(4, 0), (4, 2), (3, 7)])
def test_values_equal_the_dense_reference(h: int, tau: int) -> None:
    def body(peer: Peer) -> np.ndarray:
        model, optimizer = attached(peer)
        for _ in range(23):
            descend(peer, model, optimizer)
        return model.at.detach().numpy().copy()

    found = swarm(
        3, body, presets.preset("loopback"), algorithm=f"outer:h={h},mu=0.6,eta=0.9,slack=inf,wait=0,tau={tau}"
    )
    expected = reference(3, 23, h, tau, 0.6, 0.9, momentum=0.9)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def push(peer: Peer, model: Point, optimizer: torch.optim.Optimizer) -> None:
    """Take a step of a fixed length, so that it is known where all moves together lead to."""
    model.at.grad = torch.full((SIZE,), 1.0 + peer.rank, dtype=torch.float64)
    optimizer.step()


def test_when_a_peer_dies_in_the_middle_of_an_average_nobody_stops_for_long_and_no_move_of_the_living_is_lost() -> None:
    """Rank 2 takes part in no average. With mu = 0 and eta = 1 the others' mean is that of their own moves."""
    meeting = Meeting(3, algorithm="outer:h=3,mu=0,eta=1")
    dead = threading.Event()
    together_now = threading.Barrier(2, timeout=LONGEST)
    rounds = [0, 0]

    def dies() -> None:
        peer = meeting.peer(2, quick())
        model, optimizer = attached(peer, momentum=0.0)
        push(peer, model, optimizer)
        peer._attached().session.driver.close()  # as if by SIGKILL: no farewell
        dead.set()

    def stays(peer: Peer) -> tuple[int, int, np.ndarray]:
        model, optimizer = attached(peer, momentum=0.0)
        assert dead.wait(LONGEST)
        made = 0  # steps while the average waits for the dead peer
        while len(peer.view) == 3:
            push(peer, model, optimizer)
            made += steps_of(peer)._promise is not None
            time.sleep(0.005)
        wait_until(lambda: len(peer.view) == 2)
        while min(rounds) < 3 or rounds[0] != rounds[1]:  # side by side, to a moment after the same averages
            together_now.wait()
            push(peer, model, optimizer)
            rounds[peer.rank] = common(peer)[0]
            together_now.wait()
        return made, peer.step, model.at.detach().numpy().copy()

    first, second, gone = together([meeting.task(0, stays, quick()), meeting.task(1, stays, quick()), dies])
    assert gone is None
    assert min(first[0], second[0]) > 10, "they went on until it was declared dead"
    expected = -RATE * (1.0 * first[1] + 2.0 * second[1]) / 2
    np.testing.assert_allclose((first[2] + second[2]) / 2, np.full(SIZE, expected), rtol=1e-12)


def test_nobody_stands_still_for_a_slow_peer_and_no_move_is_lost() -> None:
    """Rank 1 takes its second step when rank 0 has made 20 more in the middle of an average."""

    def fast(peer: Peer) -> tuple[int, bytes]:
        model, optimizer = attached(peer, momentum=0.0)
        for _ in range(3):
            before = common(peer)[0]
            while common(peer)[0] == before:
                push(peer, model, optimizer)
                far[0] = peer.step
        assert steps_of(peer)._promise is not None, "the next average has begun"
        ended.set()
        steps = peer.step
        peer.consensus(timeout=LONGEST)
        return steps, bits(model)

    def slow(peer: Peer) -> tuple[int, bytes]:
        model, optimizer = attached(peer, momentum=0.0)
        while not ended.is_set():
            push(peer, model, optimizer)
            goal = far[0] + 20
            wait_until(lambda goal=goal: far[0] > goal or ended.is_set())
        wait_until(lambda: steps_of(peer)._session.status().called)
        steps = peer.step
        peer.consensus(timeout=LONGEST)
        return steps, bits(model)

    far, ended = [0], threading.Event()
    one, other = swarm(2, [fast, slow], presets.preset("loopback"), algorithm="outer:h=4,mu=0,eta=1,slack=0,wait=0")
    assert one[1] == other[1]
    expected = -RATE * (1.0 * one[0] + 2.0 * other[0]) / 2
    np.testing.assert_allclose(np.frombuffer(one[1]), np.full(SIZE, expected), rtol=1e-12)


def test_a_peer_that_missed_an_average_takes_the_common_values_over_and_keeps_its_own_moves() -> None:
    """Rank 0 ends after 6 steps, 2 of which are in no average; rank 1 makes the second average alone."""
    steps: list[OuterSteps] = []

    def ends(peer: Peer) -> bytes:
        model, optimizer = attached(peer, momentum=0.0)
        for _ in range(6):
            push(peer, model, optimizer)
        steps.append(steps_of(peer))
        peer.consensus(timeout=LONGEST)
        return bits(model)

    def goes_on(peer: Peer) -> bytes:
        model, optimizer = attached(peer, momentum=0.0)
        for step in range(10):
            if step == 6:
                wait_until(lambda: bool(steps) and not steps[0]._takes_part)
            push(peer, model, optimizer)
        peer.consensus(timeout=LONGEST)
        return bits(model)

    algorithm = "outer:h=4,mu=0,eta=1,slack=inf,wait=inf"
    one, other = swarm(2, [ends, goes_on], presets.preset("loopback"), algorithm=algorithm)
    assert one == other
    expected = -RATE * ((4 * 1.0 + 4 * 2.0) / 2 + 4 * 2.0 + (2 * 1.0 + 2 * 2.0) / 2)
    np.testing.assert_allclose(np.frombuffer(one), np.full(SIZE, expected), rtol=1e-12)


@pytest.mark.usefixtures("as_late_as_can_be")
def test_a_checkpoint_waits_for_the_average_that_travels_and_goes_on_to_the_bit(tmp_path: Path) -> None:
    """Averages begin after steps 4 and 8, and would be there after 7 and 11; the checkpoint is of step 6."""
    algorithm = "outer:h=4,slack=inf,wait=0,tau=3"

    def body(steps: int) -> Any:
        def act(peer: Peer) -> tuple[int, bytes, bytes]:
            model, optimizer = attached(peer)
            a, b = problem(peer.rank)
            for _ in peer.batches(range(10_000), 1, 1000):
                optimizer.zero_grad()
                (0.05 * (a @ model.at - b).square().sum()).backward()
                optimizer.step()
                if peer.step == 6:
                    assert not steps_of(peer)._average.travels
                if peer.step >= steps:
                    break
            return *common(peer), bits(model)

        return act

    def setup(name: str) -> dict[str, Any]:
        return {"algorithm": algorithm, "checkpoint_every": 6, "run_dir": str(tmp_path / name)}

    whole = swarm(2, body(11), presets.preset("loopback"), **setup("whole"))
    swarm(2, body(7), presets.preset("loopback"), **setup("cut"))
    assert swarm(2, body(11), presets.preset("loopback"), **setup("cut"), resume=True) == whole
    assert whole[0][0] == 2


def test_whoever_continues_from_the_middle_of_an_average_has_its_moves_in_the_next_one() -> None:
    """A peer that is stopped does not wait: what travelled is part of how far it is from the common values."""
    point = Point(np.zeros(SIZE))
    average = OuterAverage(Outer(0.0, 1.0), point, torch.optim.SGD(point.parameters(), lr=1.0))
    average.start()
    average.alone = 3
    with torch.no_grad():
        point.at += 1.0
        average.gather()
        average.alone += 2
        point.at += 0.5
    saved, values = average.state_dict(), point.at.detach().clone()
    assert saved["alone"] == 5
    again = OuterAverage(Outer(0.0, 1.0), point, torch.optim.SGD(point.parameters(), lr=1.0))
    again.load_state_dict(saved)
    again.restored = True
    again.start()
    again.gather()
    np.testing.assert_allclose(again.vector.values[:SIZE], np.full(SIZE, -1.5))
    again.step()
    torch.testing.assert_close(point.at.detach(), values)


@pytest.mark.usefixtures("as_late_as_can_be")
def test_when_one_has_nan_in_an_average_that_travels_all_go_back() -> None:
    def body(peer: Peer) -> tuple[bytes, bytes, bytes]:
        model, optimizer = attached(peer, momentum=0.0)
        for _ in range(3):
            descend(peer, model, optimizer)
        before = common(peer)[1]
        assert before != bytes(len(before))
        model.at.grad = torch.full((SIZE,), float("nan") if peer.rank == 1 else 1.0, dtype=torch.float64)
        optimizer.step()  # the second average begins, with the NaN of rank 1
        descend(peer, model, optimizer)  # and is there
        after = bits(model)
        for _ in range(3):
            descend(peer, model, optimizer)
        return before, after, common(peer)[1]

    results = swarm(3, body, presets.preset("loopback"), algorithm="outer:h=2,slack=inf,wait=0,tau=1", compress="int8")
    assert len(set(results)) == 1
    before, after, later = results[0]
    assert before == after != later
    assert np.isfinite(np.frombuffer(later)).all()


def test_a_newcomer_in_the_middle_of_an_average_gets_what_all_have_from_peers_that_train() -> None:
    """The average travels for as long as rank 0 does not take part in it; rank 2 comes meanwhile."""
    meeting = Meeting(3, algorithm="outer:h=3,slack=inf,wait=0")
    came, over = threading.Event(), threading.Event()
    trails: dict[int, dict[int, bytes]] = {0: {}, 1: {}, 2: {}}

    def trains(peer: Peer) -> None:
        model, optimizer = attached(peer, 7.0 * peer.rank)
        if peer.rank == 2:
            assert peer.step > 0
        while not over.is_set():
            if peer.rank == 0 and peer.step == 5 and not came.is_set():
                # Rank 1 has begun the second average, and goes on; rank 2 dies, and comes back.
                assert came.wait(LONGEST)
            descend(peer, model, optimizer)
            trails[peer.rank].setdefault(*common(peer))
            if peer.rank == 2:
                came.set()
                if len(trails[2]) > 4:
                    over.set()
            time.sleep(0.002)

    def dies_and_returns() -> None:
        peer = meeting.peer(2, quick())
        model, optimizer = attached(peer)
        for _ in range(5):
            descend(peer, model, optimizer)
        wait_until(lambda: len(trails[1]) > 1)
        peer._attached().session.driver.close()
        # Rank 0 stands still, and rank 1 alone can give the state, while it trains.
        threading.Timer(0.0, came.set).start()
        with meeting.peer(2, quick(), incarnation=7) as again:
            trains(again)

    results = together([meeting.task(0, trains, quick()), meeting.task(1, trains, quick()), dies_and_returns])
    assert results == [None] * 3, results
    for other in (1, 2):
        shared = trails[0].keys() & trails[other].keys()
        assert len(shared) > 2
        assert all(trails[0][one] == trails[other][one] for one in shared)
