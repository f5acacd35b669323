"""Replicas whose gradients are averaged: real engines in threads."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from swarms import LONGEST, Meeting, flat, swarm, together
from torch import nn

from gossip import events, presets
from gossip.errors import SettingsError
from gossip.membership.membership_settings import MembershipSettings
from gossip.presets import Preset
from peers import Peer
from peers.model.gradients import Gradients
from peers.model.whole_state import WholeState
from peers.optimizers import LARS

SIZE, STEPS, RATE = 5, 50, 0.05


def quick() -> Preset:
    """Return settings by which a death is told within a second or two."""
    watchful = MembershipSettings(
        interval=0.15, timeout_floor=0.03, timeout_ceiling=0.05, spread_interval=0.05, suspicion_spread=1.0
    )
    return replace(presets.preset("loopback"), membership=watchful)


def problem(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    a = torch.randn(SIZE, SIZE, generator=generator, dtype=torch.float64)
    return a, torch.randn(SIZE, generator=generator, dtype=torch.float64)


class Point(nn.Module):
    def __init__(self, values: Any) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.as_tensor(values, dtype=torch.float64).clone())


def attached(peer: Peer, value: float = 0.0, momentum: float = 0.9) -> tuple[Point, torch.optim.Optimizer]:
    model = Point(np.full(SIZE, value))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
    peer.attach(model, optimizer)
    return model, optimizer


def descend(peer: Peer, model: Point, optimizer: torch.optim.Optimizer) -> None:
    a, b = problem(peer.rank)
    optimizer.zero_grad()
    (0.05 * (a @ model.at - b).square().sum()).backward()
    optimizer.step()


@pytest.mark.parametrize("algorithm", ["allreduce", "allreduce:plan=ring", "allreduce:plan=tree"])
@pytest.mark.parametrize("n", [1, 3, 4])
def test_replicas_stay_the_same_bits_and_equal_the_dense_reference(n: int, algorithm: str) -> None:
    def body(peer: Peer) -> tuple[bytes, int]:
        model, optimizer = attached(peer, float(peer.rank))
        for _ in range(STEPS):
            descend(peer, model, optimizer)
        return model.at.detach().numpy().tobytes(), peer.step

    results = swarm(n, body, presets.preset("loopback"), algorithm=algorithm)
    assert len(set(results)) == 1
    z, v = np.zeros(SIZE), np.zeros(SIZE)
    for _ in range(STEPS):
        gradients = []
        for rank in range(n):
            a, b = (one.numpy() for one in problem(rank))
            gradients.append(0.1 * a.T @ (a @ z - b))
        v = 0.9 * v + np.mean(gradients, axis=0)
        z = z - RATE * v
    np.testing.assert_allclose(np.frombuffer(results[0][0]), z, rtol=1e-11, atol=1e-13)


class Odd(nn.Module):
    """Batch norm, a parameter that nobody uses, one that only rank 0 uses, half precision, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.unused = nn.Parameter(torch.ones(3))
        self.sometimes = nn.Parameter(torch.ones(2))
        self.short = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        out = self.norm(self.first(x)).square().mean() + (self.short.float() * x[0, :2]).sum()
        return out + self.sometimes.sum() if rank == 0 else out


@pytest.mark.parametrize("compress", ["none", "int8", "topk:share=20%"])
def test_parameters_without_a_gradient_count_as_zero_and_buffers_are_averaged(compress: str) -> None:
    def body(peer: Peer) -> dict[str, Any]:
        torch.manual_seed(peer.rank)
        model = Odd()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
        peer.attach(model, optimizer)
        generator = torch.Generator().manual_seed(peer.rank)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 4, generator=generator), peer.rank).backward()
            optimizer.step()
        return {name: value.clone() for name, value in model.state_dict().items()}

    first, *others = swarm(3, body, presets.preset("loopback"), algorithm="allreduce", compress=compress)
    for other in others:
        for name, value in first.items():
            assert torch.equal(value, other[name]), name
    assert torch.equal(first["unused"], torch.ones(3)), "no gradient anywhere: not even decayed"
    assert not torch.equal(first["sometimes"], torch.ones(2)), "one peer's gradient moves it on all"
    assert first["norm.running_var"].min() > 0.1, "no codec touches buffers: left out, they would be 0"


def test_gradients_go_there_and_back() -> None:
    model = Odd()
    gradients = Gradients(model)
    assert gradients.values.dtype == np.float32
    model(torch.randn(8, 4), 0).backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    gradients.gather()
    model.zero_grad()
    gradients.scatter()
    after = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    gradients.drop()
    assert all(parameter.grad is None for parameter in model.parameters())
    embedding = nn.Embedding(5, 2, sparse=True)
    embedding(torch.tensor([1, 1, 3])).sum().backward()
    sparse = Gradients(embedding)
    sparse.gather()
    sparse.scatter()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1], [0, 0]]


@pytest.mark.parametrize("compress", ["none", "int8", "topk"])
def test_a_gradient_that_is_not_finite_is_left_out_by_all(compress: str) -> None:
    def body(peer: Peer) -> tuple[bytes, bytes]:
        model, optimizer = attached(peer)
        descend(peer, model, optimizer)
        before = model.at.detach().numpy().tobytes()
        model.at.grad = torch.full((SIZE,), float("nan") if peer.rank == 1 else 1.0, dtype=torch.float64)
        optimizer.step()
        after = model.at.detach().numpy().tobytes()
        assert peer.step == 2
        descend(peer, model, optimizer)
        assert torch.isfinite(model.at).all()
        return before, after

    for before, after in swarm(3, body, presets.preset("loopback"), algorithm="allreduce", compress=compress):
        assert before == after


def test_one_that_runs_out_of_data_is_not_waited_for_and_consensus_makes_all_equal() -> None:
    def body(peer: Peer) -> tuple[int, int, bytes, bytes]:
        model, optimizer = attached(peer)
        for _ in range(3 + 4 * peer.rank):
            descend(peer, model, optimizer)
        own = peer.step
        assert peer.consensus(timeout=LONGEST) == 0.0
        met = peer.step, model.at.detach().numpy().tobytes()
        for _ in range(3):  # and on, together
            descend(peer, model, optimizer)
        return own, *met, model.at.detach().numpy().tobytes()

    results = swarm(3, body, presets.preset("loopback"), algorithm="allreduce")
    assert [own for own, *_ in results] == [3, 7, 11]
    assert len({rest for _, *rest_ in results for rest in [tuple(rest_)]}) == 1
    assert results[0][1] == 11


@pytest.mark.parametrize("compress", ["none", "int8"])
def test_consensus_compares_replicas_and_makes_those_equal_that_a_script_changed(
    compress: str, caplog: pytest.LogCaptureFixture
) -> None:
    def body(peer: Peer) -> list[bytes]:
        model, optimizer = attached(peer)
        bits = []
        for changed in (False, True):
            descend(peer, model, optimizer)
            if changed and peer.rank == 1:
                with torch.no_grad():
                    model.at += 1.0
            assert peer.consensus(timeout=LONGEST) == 0.0
            bits.append(model.at.detach().numpy().tobytes())
            assert ("away from the average" in caplog.text) >= changed
        descend(peer, model, optimizer)
        return [*bits, model.at.detach().numpy().tobytes()]

    results = swarm(3, body, presets.preset("loopback"), algorithm="allreduce", compress=compress)
    assert results[0] == results[1] == results[2]
    before, after = np.frombuffer(results[0][0]), np.frombuffer(results[0][1])
    assert np.abs(after - before).max() > 0.1, "the average of all, the changed one included"
    said = [record.message for record in caplog.records if "away from the average" in record.message]
    assert len(said) == 3, "one for each rank, and none for the consensus of equal replicas"


def test_a_peer_that_trains_while_others_agree_does_not_take_their_values_for_gradients() -> None:
    model = Odd()
    gradients = Gradients(model)
    gradients.gather()
    assert gradients.of_one_kind
    trains = gradients.values.copy()
    gradients.gather_values()
    assert gradients.of_one_kind
    gradients.values[:] = (gradients.values + trains) / 2
    assert not gradients.of_one_kind


def test_the_swarm_sees_its_epochs_and_evaluates_what_all_have() -> None:
    def body(peer: Peer) -> tuple[int, float, float]:
        model, optimizer = attached(peer)
        seen = 0
        for batch in peer.batches(range(60), 4, 2):
            descend(peer, model, optimizer)
            seen += len(batch)
        found = peer.evaluate(lambda: float(model.at.detach().sum()), timeout=LONGEST)
        return seen, found.own, found.average

    results = swarm(3, body, presets.preset("loopback"), algorithm="allreduce")
    assert sum(seen for seen, *_ in results) >= 120
    assert len({average for *_, average in results}) == 1


def test_when_one_dies_the_others_go_on_and_when_it_comes_back_it_becomes_what_they_are() -> None:
    """The newcomer has momentum as well, or it would go its own way from its first step on."""
    meeting = Meeting(3, algorithm="allreduce")
    died, back, over = threading.Event(), threading.Event(), threading.Event()

    def dies() -> None:
        peer = meeting.peer(2, quick())
        model, optimizer = attached(peer)
        for _ in range(5):
            descend(peer, model, optimizer)
        peer._attached().session.driver.close()  # as if by SIGKILL: no farewell
        died.set()
        deadline = time.monotonic() + LONGEST
        while 2 in views[0] or not views[0]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with meeting.peer(2, quick(), incarnation=7) as again:
            model, optimizer = attached(again, 55.0)
            assert again.step > 5
            for _ in range(10):
                descend(again, model, optimizer)
            trail = {again.step: model.at.detach().numpy().tobytes()}
            back.set()
            while not over.is_set():
                descend(again, model, optimizer)
                trail[again.step] = model.at.detach().numpy().tobytes()
            trails[2] = trail

    views: dict[int, tuple[int, ...]] = {0: ()}
    trails: dict[int, dict[int, bytes]] = {}

    def stays(peer: Peer) -> None:
        model, optimizer = attached(peer)
        trail = trails[peer.rank] = {}
        assert peer.step == 0
        while not over.is_set():
            descend(peer, model, optimizer)
            trail[peer.step] = model.at.detach().numpy().tobytes()
            views[peer.rank] = peer.view
            if peer.rank == 0 and back.is_set() and peer.step > 30:
                over.set()
            time.sleep(0.002)

    results = together([meeting.task(0, stays, quick()), meeting.task(1, stays, quick()), dies])
    assert results == [None] * 3, results
    assert died.is_set()
    shared = trails[0].keys() & trails[1].keys()
    assert len(shared) > 20
    assert all(trails[0][step] == trails[1][step] for step in shared)
    shared = trails[0].keys() & trails[2].keys()
    assert shared
    assert all(trails[0][step] == trails[2][step] for step in shared)


def test_who_was_given_up_and_lives_takes_the_state_over_and_goes_on() -> None:
    """In the middle of its training, so that it finds out while it computes, or while it waits for the others."""
    again, over = threading.Event(), threading.Event()

    def body(peer: Peer) -> dict[int, bytes]:
        model, optimizer = attached(peer)
        trail: dict[int, bytes] = {}
        while not over.is_set():
            descend(peer, model, optimizer)
            trail[peer.step] = model.at.detach().numpy().tobytes()
            session = peer._attached().session
            me = session.status().me
            if peer.rank == 1 and peer.step == 5 and me.incarnation == 0:
                session.driver.post(events.PeerDied(me))
            if peer.rank == 1 and me.incarnation > 0 and not again.is_set():
                again.set()
                trail.clear()  # of the last steps of its former life it had its own idea, maybe
            if peer.rank == 0 and again.is_set() and peer.step > 40:
                over.set()
            time.sleep(0.002)
        return trail

    first, second, third = swarm(3, body, quick(), algorithm="allreduce")
    assert again.is_set()
    for other in (second, third):
        shared = first.keys() & other.keys()
        assert len(shared) > 5
        assert all(first[step] == other[step] for step in shared)


def test_a_whole_state_comes_back_to_the_bit() -> None:
    def made(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    model, optimizer, scheduler = made(0)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
        scheduler.step()
    state = WholeState(model, optimizer, {"scheduler": scheduler})
    other, second, later = made(1)
    taken = WholeState(other, second, {"scheduler": later})
    assert taken.seal(3) != state.seal(3)
    assert taken.decode(state.encode(3)) == 3
    assert torch.equal(flat(model), flat(other))
    assert later.state_dict() == scheduler.state_dict()
    assert taken.seal(3) == state.seal(3)
    assert taken.seal(4) != state.seal(3)


def test_a_whole_state_leaves_out_what_is_frozen_and_what_is_kept_for_it() -> None:
    def made(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(100, 100).requires_grad_(False))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for parameter in model.parameters():
            optimizer.state[parameter] = {"momentum_buffer": torch.full_like(parameter, float(seed))}
        return model, optimizer

    model, optimizer = made(0)
    state = WholeState(model, optimizer, {})
    other, second = made(1)
    taken = WholeState(other, second, {})
    kept = other[1].weight.clone()
    assert len(state.encode(3)) < 4000
    assert taken.decode(state.encode(3)) == 3
    assert torch.equal(other[0].weight, model[0].weight)
    assert float(second.state[other[0].weight]["momentum_buffer"][0, 0]) == 0.0
    assert torch.equal(other[1].weight, kept), "it is made equal when peers come together"
    with torch.no_grad():
        model[1].weight += 1.0  # a slow copy that the script moves by hand, say
    taken.decode(state.encode(4))
    assert torch.equal(other[1].weight, model[1].weight)


def test_nothing_is_pushed_and_what_cannot_be_meant_is_refused() -> None:
    def body(peer: Peer) -> tuple[int, float]:
        model, optimizer = attached(peer)
        for _ in range(3):
            descend(peer, model, optimizer)
        status = peer._attached().session.status()
        return sum(status.unanswered_weights) + sum(status.turns), peer.weight

    assert swarm(2, body, presets.preset("loopback"), algorithm="allreduce") == [(0, 1.0)] * 2
    for wrong, says in (({"share": 0.5}, "moves no mass"), ({"compress": "auto"}, "set compress to a codec")):
        with pytest.raises(SettingsError, match=says):
            swarm(1, attached, presets.preset("loopback"), algorithm="allreduce", **wrong)


@pytest.mark.parametrize("compress", ["bf16", "int8", "sign", "topk:share=40%", "qsgd:levels=127"])
def test_through_a_codec_replicas_stay_the_same_bits_and_training_gets_there(compress: str) -> None:
    """The loss of the mean problem ends within a twentieth of what it falls by without a codec."""

    def body(peer: Peer) -> bytes:
        model, optimizer = attached(peer, float(peer.rank), momentum=0.0)
        for _ in range(100):
            descend(peer, model, optimizer)
        return model.at.detach().numpy().tobytes()

    def loss(at: np.ndarray) -> float:
        return sum(float(np.square(a.numpy() @ at - b.numpy()).sum()) for a, b in map(problem, range(3)))

    found = swarm(3, body, presets.preset("loopback"), algorithm="allreduce", compress=compress)
    assert len(set(found)) == 1
    plain = np.zeros(SIZE)
    for _ in range(100):
        gradients = [0.1 * a.numpy().T @ (a.numpy() @ plain - b.numpy()) for a, b in map(problem, range(3))]
        plain -= RATE * np.mean(gradients, axis=0)
    fallen = loss(np.zeros(SIZE)) - loss(plain)
    assert abs(loss(np.frombuffer(found[0])) - loss(plain)) < 0.05 * fallen


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda ones: torch.optim.SGD(ones, lr=RATE, momentum=0.9),
            "SGD would apply 0.9 once more: use momentum=0",
        ),
        (lambda ones: LARS(ones, momentum=0.5), "LARS would apply 0.5 once more: use momentum=0"),
        (lambda ones: torch.optim.Adam(ones), "Adam would apply 0.9 once more: use a first beta of 0"),
    ],
)
def test_correction_is_refused_where_the_optimizer_has_momentum_too(make: Any, said: str) -> None:
    def body(peer: Peer) -> None:
        model = Point(np.zeros(SIZE))
        with pytest.raises(SettingsError, match=f"{said}, or leave correction out"):
            peer.attach(model, make(model.parameters()))
        assert peer._attachment is None, "before anybody is waited for"

    swarm(1, body, presets.preset("loopback"), algorithm="allreduce:correction=0.9", compress="topk")


def test_with_correction_replicas_stay_the_same_bits_and_come_further() -> None:
    """A tenth of the values is sent, at a rate that is too low without momentum."""
    targets = np.random.default_rng(0).normal(size=(3, 60))

    def body(peer: Peer) -> bytes:
        model = Point(np.zeros(60))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        peer.attach(model, optimizer)
        for _ in range(STEPS):
            model.at.grad = model.at.detach() - torch.from_numpy(targets[peer.rank])
            optimizer.step()
        return model.at.detach().numpy().tobytes()

    left = {}
    for correction in (0, 0.9):
        algorithm = f"allreduce:correction={correction}"
        found = swarm(3, body, presets.preset("loopback"), algorithm=algorithm, compress="topk:share=10%")
        assert len(set(found)) == 1
        best = targets.mean(axis=0)
        left[correction] = np.linalg.norm(np.frombuffer(found[0]) - best) / np.linalg.norm(best)
    assert left[0.9] < left[0] / 2
