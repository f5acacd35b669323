"""Local steps and an outer step with all others: real engines in threads, against the dense formula."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from swarms import LONGEST, Meeting, swarm, together
from test_gradient_averaging import RATE, SIZE, Point, attached, descend, problem, quick
from torch import nn

from gossip import events, presets
from peers import Peer

#: All peers make all their steps, however busy the machine is, and stand still while they average.
IN_STEP = "slack=inf,wait=inf"


def bits(model: Point) -> bytes:
    return model.at.detach().numpy().tobytes()


def common(peer: Peer) -> tuple[int, bytes]:
    """Return the number of averages, and the values that all have in common after the last one."""
    method: Any = peer._attached()._method
    return method.rounds, method._last[0].numpy().tobytes()


def outer(n: int, steps: list[list[int]], mu: float, eta: float, momentum: float = 0.9) -> np.ndarray:
    """Return z0 after rounds, each with a number of steps for each peer."""
    z0, u, v = np.zeros(SIZE), np.zeros(SIZE), np.zeros((n, SIZE))
    for counts in steps:
        z = np.tile(z0, (n, 1))
        for rank, count in enumerate(counts):
            a, b = (one.numpy() for one in problem(rank))
            for _ in range(count):
                v[rank] = momentum * v[rank] + 0.1 * a.T @ (a @ z[rank] - b)
                z[rank] = z[rank] - RATE * v[rank]
        s = (z0 - z).mean(axis=0)
        u = mu * u + s
        z0 = z0 - eta * (s + mu * u)
    return z0


@pytest.mark.parametrize("n", [1, 3, 4])
def test_replicas_are_the_same_bits_after_an_average_and_equal_the_dense_reference(n: int) -> None:
    def body(peer: Peer) -> tuple[bytes, int, bytes]:
        model, optimizer = attached(peer, float(peer.rank))
        for _ in range(20):
            descend(peer, model, optimizer)
        agreed = bits(model)
        descend(peer, model, optimizer)
        return agreed, peer.step, bits(model)

    results = swarm(n, body, presets.preset("loopback"), algorithm=f"outer:h=4,mu=0.6,eta=0.9,{IN_STEP}")
    assert len({agreed for agreed, *_ in results}) == 1
    assert {step for _, step, _ in results} == {21}
    assert len({own for *_, own in results}) == n, "in between each trains alone"
    np.testing.assert_allclose(np.frombuffer(results[0][0]), outer(n, [[4] * n] * 5, 0.6, 0.9), rtol=1e-11, atol=1e-13)


def test_with_one_step_and_without_momentum_it_is_allreduce() -> None:
    def body(peer: Peer) -> np.ndarray:
        model, optimizer = attached(peer, momentum=0.0)
        for _ in range(10):
            descend(peer, model, optimizer)
        return model.at.detach().numpy().copy()

    found = swarm(3, body, presets.preset("loopback"), algorithm="outer:h=1,mu=0,eta=1,wait=inf")
    expected = swarm(3, body, presets.preset("loopback"), algorithm="allreduce")
    np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize("compress", ["int2", "int8", "topk:share=40%"])
def test_through_a_codec_replicas_are_the_same_bits_and_training_gets_there(compress: str) -> None:
    def body(peer: Peer) -> bytes:
        model, optimizer = attached(peer, momentum=0.0)
        for _ in range(200):
            descend(peer, model, optimizer)
        return bits(model)

    found = swarm(
        3, body, presets.preset("loopback"), algorithm=f"outer:h=4,mu=0.5,eta=0.7,{IN_STEP}", compress=compress
    )
    assert len(set(found)) == 1
    plain = outer(3, [[4] * 3] * 50, 0.5, 0.7, momentum=0.0)
    assert np.linalg.norm(np.frombuffer(found[0]) - plain) < 0.1 * np.linalg.norm(plain)


def test_a_slow_peer_takes_part_with_the_steps_that_it_has_made() -> None:
    """Rank 1 makes its second step when rank 0, which has made four, waits for it."""

    def body(peer: Peer) -> bytes:
        model, optimizer = attached(peer)
        for _ in range(3):
            for step in range(4 if peer.rank == 0 else 2):
                if peer.rank == 1 and step == 1:
                    deadline = time.monotonic() + LONGEST
                    while not peer._attached().session.status().called:
                        assert time.monotonic() < deadline
                        time.sleep(0.001)
                descend(peer, model, optimizer)
        return bits(model)

    first, second = swarm(2, body, presets.preset("loopback"), algorithm="outer:h=4,mu=0.6,eta=0.9,slack=0,wait=inf")
    assert first == second
    np.testing.assert_allclose(np.frombuffer(first), outer(2, [[4, 2]] * 3, 0.6, 0.9), rtol=1e-11, atol=1e-13)


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.short = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x).square().mean() + (self.short.float() * x[0, :2]).sum()


def test_buffers_become_the_mean_and_take_no_outer_step() -> None:
    def body(peer: Peer) -> list[dict[str, Any]]:
        model = Norm()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        peer.attach(model, optimizer)
        generator = torch.Generator().manual_seed(peer.rank)
        seen = []
        for _ in range(6):
            optimizer.zero_grad()
            model((1 + peer.rank) * torch.randn(8, 4, generator=generator)).backward()
            before = model.norm.running_var.clone()
            optimizer.step()
            seen.append({"before": before, **{name: value.clone() for name, value in model.state_dict().items()}})
        return seen

    found = swarm(3, body, presets.preset("loopback"), algorithm=f"outer:h=2,{IN_STEP}", compress="int2")
    for step in (1, 3, 5):
        first, *others = (seen[step] for seen in found)
        for name in ("norm.running_mean", "norm.running_var", "norm.weight", "short", "frozen"):
            assert all(torch.equal(first[name], other[name]) for other in others), name
        mean = torch.stack([seen[step]["before"] for seen in found]).mean(0)
        torch.testing.assert_close(first["norm.running_var"], mean)


def test_when_one_has_nan_all_go_back_to_the_last_average() -> None:
    def body(peer: Peer) -> tuple[bytes, bytes, bytes]:
        model, optimizer = attached(peer)
        for _ in range(2):
            descend(peer, model, optimizer)
        before = bits(model)
        descend(peer, model, optimizer)
        model.at.grad = torch.full((SIZE,), float("nan") if peer.rank == 1 else 1.0, dtype=torch.float64)
        optimizer.step()
        after = bits(model)
        if peer.rank == 1:
            optimizer.state.clear()  # its own momentum is NaN, too
        for _ in range(2):
            descend(peer, model, optimizer)
        return before, after, bits(model)

    results = swarm(3, body, presets.preset("loopback"), algorithm=f"outer:h=2,{IN_STEP}", compress="int8")
    assert len(set(results)) == 1
    before, after, later = results[0]
    assert before == after != later
    assert np.isfinite(np.frombuffer(later)).all()


def test_one_that_runs_out_of_data_is_not_waited_for_and_consensus_takes_the_mean_of_all() -> None:
    """Rank 0 misses averages, so its z0 is old when it comes back; a mean of z would hide that, so look at z0."""

    def body(peer: Peer) -> tuple[bytes, bytes, dict[int, bytes], bytes]:
        model, optimizer = attached(peer)
        for _ in range(6 + 4 * peer.rank):
            descend(peer, model, optimizer)
        own = bits(model)
        assert peer.consensus(timeout=LONGEST) == 0.0
        met, trail = bits(model), dict([common(peer)])
        for _ in range(10):  # and on, together
            descend(peer, model, optimizer)
            trail.setdefault(*common(peer))
        assert peer.consensus(timeout=LONGEST) == 0.0
        return own, met, trail, bits(model)

    results = swarm(3, body, presets.preset("loopback"), algorithm=f"outer:h=4,{IN_STEP}")
    assert len({own for own, *_ in results}) == 3
    assert len({met for _, met, *_ in results}) == len({later for *_, later in results}) == 1
    first, *others = (trail for _, _, trail, _ in results)
    for other in others:
        shared = first.keys() & other.keys()
        assert {min(first), min(first) + 2} <= shared, "after the first consensus, and after each average since"
        assert all(first[number] == other[number] for number in shared), "z0 is the same at all"


def test_a_dead_peer_is_not_waited_for_and_when_it_comes_back_it_gets_what_all_have() -> None:
    """It dies in the middle of a round of local steps, and comes back in the middle of another."""
    meeting = Meeting(3, algorithm="outer:h=3", compress="int2")
    back, over = threading.Event(), threading.Event()
    views: dict[int, tuple[int, ...]] = {0: ()}
    #: What all had in common after each average, as each peer saw it.
    averages: dict[int, dict[int, bytes]] = {0: {}, 1: {}, 2: {}}

    def note(peer: Peer) -> None:
        averages[peer.rank].setdefault(*common(peer))

    def dies() -> None:
        peer = meeting.peer(2, quick())
        model, optimizer = attached(peer)
        for _ in range(5):
            descend(peer, model, optimizer)
        peer._attached().session.driver.close()  # as if by SIGKILL: no farewell
        deadline = time.monotonic() + LONGEST
        while 2 in views[0] or not views[0]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        averages[2].clear()
        with meeting.peer(2, quick(), incarnation=7) as again:
            model, optimizer = attached(again, 55.0)
            assert again.step > 5
            while not over.is_set():
                descend(again, model, optimizer)
                note(again)
                if len(averages[2]) > 3:
                    back.set()

    def stays(peer: Peer) -> None:
        model, optimizer = attached(peer)
        while not over.is_set():
            descend(peer, model, optimizer)
            note(peer)
            views[peer.rank] = peer.view
            if peer.rank == 0 and back.is_set():
                over.set()
            time.sleep(0.002)

    results = together([meeting.task(0, stays, quick()), meeting.task(1, stays, quick()), dies])
    assert results == [None] * 3, results
    for other in (1, 2):
        shared = averages[0].keys() & averages[other].keys()
        assert len(shared) > 2
        assert all(averages[0][one] == averages[other][one] for one in shared)


def test_who_was_given_up_and_lives_takes_the_common_state_over_and_goes_on() -> None:
    again, over = threading.Event(), threading.Event()

    def body(peer: Peer) -> dict[int, bytes]:
        model, optimizer = attached(peer)
        trail: dict[int, bytes] = {}
        since = 1 << 30
        while not over.is_set():
            descend(peer, model, optimizer)
            trail.setdefault(*common(peer))
            session = peer._attached().session
            me = session.status().me
            if peer.rank == 1 and peer.step == 8 and me.incarnation == 0:
                session.driver.post(events.PeerDied(me))
            if peer.rank == 1 and me.incarnation > 0 and not again.is_set():
                again.set()
                trail.clear()
            if peer.rank == 0 and again.is_set():
                since = min(since, len(trail))
                if len(trail) > since + 10:
                    over.set()
            time.sleep(0.002)
        return trail

    first, second, third = swarm(3, body, quick(), algorithm="outer:h=3", compress="int2")
    assert again.is_set()
    for other in (second, third):
        shared = first.keys() & other.keys()
        assert len(shared) > 5
        assert all(first[step] == other[step] for step in shared)


def test_a_checkpoint_in_the_middle_of_a_round_goes_on_to_the_bit(tmp_path: Path) -> None:
    setup = {"algorithm": f"outer:h=4,{IN_STEP}", "checkpoint_every": 6, "run_dir": str(tmp_path)}

    def body(steps: int) -> Any:
        def act(peer: Peer) -> bytes:
            model, optimizer = attached(peer)
            a, b = problem(peer.rank)
            for _ in peer.batches(range(10_000), 1, 1000):
                optimizer.zero_grad()
                (0.05 * (a @ model.at - b).square().sum()).backward()
                optimizer.step()
                if peer.step >= steps:
                    break
            return bits(model)

        return act

    whole = swarm(2, body(12), presets.preset("loopback"), algorithm=setup["algorithm"])
    swarm(2, body(7), presets.preset("loopback"), **setup)
    assert swarm(2, body(12), presets.preset("loopback"), **setup, resume=True) == whole
