"""A parameter server of real engines in threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from swarms import LONGEST, Meeting, swarm, together
from test_gradient_averaging import RATE, SIZE, STEPS, attached, descend, problem, quick

from gossip import presets
from peers import Peer
from peers.session.cards import RendezvousError


def test_peers_train_one_model_and_end_with_the_same_bits() -> None:
    """All have the same data: then it does not matter whose moves come last."""
    a, b = problem(0)

    def body(peer: Peer) -> tuple[int, bytes]:
        model, optimizer = attached(peer, float(peer.rank), momentum=0.0)
        for _ in range(200):
            optimizer.zero_grad()
            (0.5 * (a @ model.at - b).square().sum()).backward()
            optimizer.step()
        assert peer.consensus(timeout=LONGEST) == 0.0
        return peer.step, model.at.detach().numpy().tobytes()

    results = swarm(3, body, presets.preset("loopback"), algorithm="parameter-server")
    assert len(set(results)) == 1
    found = torch.from_numpy(np.frombuffer(results[0][1]).copy())
    assert (a @ found - b).square().sum() < 0.2 * b.square().sum()


def test_moves_in_an_uneven_order_equal_the_dense_reference() -> None:
    """Each gradient is as old as the moves that others made since, and momentum is each one's own."""
    order = np.random.default_rng(0).permutation([0] * STEPS + [1] * STEPS + [2] * STEPS).tolist()
    moved = threading.Barrier(3)

    def body(peer: Peer) -> np.ndarray:
        model, optimizer = attached(peer, float(peer.rank))
        moved.wait(LONGEST)  # all have the model as it was before the first move
        trace = []
        for rank in order:
            if rank == peer.rank:
                descend(peer, model, optimizer)
                trace.append(model.at.detach().numpy().copy())
            moved.wait(LONGEST)
        return np.stack(trace)

    found = swarm(3, body, presets.preset("loopback"), algorithm="parameter-server")
    centre = np.zeros(SIZE)
    z, v = [centre] * 3, [np.zeros(SIZE)] * 3
    expected: list[list[np.ndarray]] = [[], [], []]
    for rank in order:
        a, b = (one.numpy() for one in problem(rank))
        v[rank] = 0.9 * v[rank] + 0.1 * a.T @ (a @ z[rank] - b)
        z[rank] = centre = centre - RATE * v[rank]
        expected[rank].append(centre)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_moves_of_all_add_up() -> None:
    def body(peer: Peer) -> list[float]:
        model, optimizer = attached(peer, 1.0, momentum=0.0)
        for group in optimizer.param_groups:
            group["lr"] = 1.0
        for _ in range(4):
            model.at.grad = torch.full((SIZE,), -(10.0**peer.rank), dtype=torch.float64)
            optimizer.step()
        peer.consensus(timeout=LONGEST)
        return model.at.tolist()

    assert swarm(3, body, presets.preset("loopback"), algorithm="parameter-server") == [[1 + 4 * 111.0] * SIZE] * 3


def test_a_move_that_is_not_finite_is_left_out_and_the_peer_goes_on() -> None:
    def body(peer: Peer) -> bool:
        model, optimizer = attached(peer, momentum=0.0)
        if peer.rank == 1:
            model.at.grad = torch.full((SIZE,), float("nan"), dtype=torch.float64)
            optimizer.step()
        for _ in range(3):
            descend(peer, model, optimizer)
        peer.consensus(timeout=LONGEST)
        return bool(torch.isfinite(model.at).all())

    assert swarm(2, body, presets.preset("loopback"), algorithm="parameter-server") == [True, True]


def test_the_centre_stays_until_the_others_are_through_and_says_what_it_is() -> None:
    meeting = Meeting(2, algorithm="parameter-server")
    said: list[Any] = []

    def centre(peer: Peer) -> None:
        peer._records.event = lambda **values: said.append(values.get("text"))  # type: ignore[method-assign]
        attached(peer)

    def worker(peer: Peer) -> int:
        model, optimizer = attached(peer)
        for _ in range(20):
            descend(peer, model, optimizer)
        return peer.step

    assert meeting.run([centre, worker], presets.preset("loopback")) == [None, 20]
    assert any("parameter-server has a centre: rank 0" in str(text) for text in said)


@pytest.mark.parametrize("dies", [0, 2])
def test_a_dead_worker_stops_nobody_and_a_dead_centre_everybody(dies: int) -> None:
    meeting = Meeting(3, algorithm="parameter-server")
    dead = threading.Event()

    def crash() -> None:
        peer = meeting.peer(dies, quick())
        model, optimizer = attached(peer)
        for _ in range(3):
            descend(peer, model, optimizer)
        peer._attached().session.driver.close()
        dead.set()

    def stays(peer: Peer) -> int:
        model, optimizer = attached(peer)
        while not dead.is_set() or dies in peer.view:
            descend(peer, model, optimizer)
        for _ in range(10):
            descend(peer, model, optimizer)
        return peer.step

    tasks = [meeting.task(rank, stays, quick()) if rank != dies else crash for rank in range(3)]
    results = [result for rank, result in enumerate(together(tasks)) if rank != dies]
    if dies:
        assert all(isinstance(steps, int) and steps >= 10 for steps in results), results
    else:
        for error in results:
            assert isinstance(error, RendezvousError), error
            assert "the centre, rank 0, is gone, and the model with it" in str(error)
