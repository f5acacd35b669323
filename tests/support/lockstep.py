"""Swarms in lockstep on quadratics, and the dense mixing in float64 that they are compared with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from swarms import LONGEST, patient, swarm
from torch import nn

from peers import Peer
from topologies import parse

N, SIZE, STEPS, RATE = 4, 21, 50, 0.02
Make = Callable[[Any], torch.optim.Optimizer]


class Vectors(nn.Module):
    """Two vectors in double precision, of which each takes several shards, and a statistic that nobody trains."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.from_numpy(values[:13].copy()))
        self.two = nn.Parameter(torch.from_numpy(values[13:].copy()))
        self.register_buffer("seen", torch.zeros(3, dtype=torch.float64))

    def at(self) -> torch.Tensor:
        return torch.cat([self.one, self.two])


def loss_of(rank: int, z: torch.Tensor) -> torch.Tensor:
    """Return |A z - b|^2 / 2 of a peer's own A and b."""
    a, b = (torch.from_numpy(one) for one in quadratic(rank))
    return 0.5 * (a @ z - b).square().sum()


def quadratic(rank: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng([7, rank])
    return generator.normal(size=(SIZE, SIZE)) / np.sqrt(SIZE), generator.normal(size=SIZE)


def gradient(rank: int, z: np.ndarray) -> np.ndarray:
    a, b = quadratic(rank)
    return a.T @ (a @ z - b)


def gradients(z: np.ndarray) -> np.ndarray:
    return np.stack([gradient(rank, z[rank]) for rank in range(N)])


def start() -> np.ndarray:
    """Return where all begin: the first one's values."""
    return np.tile(np.random.default_rng(0).normal(size=SIZE), (N, 1))


def mixing(topology: str, turn: int) -> np.ndarray:
    """Return the matrix of one turn: what each holds afterwards of what each held."""
    schedule = parse(topology, N, seed=0)
    matrix = np.eye(N)
    for sender in range(N):
        for receiver, fraction in schedule.out_edges(sender, turn):
            matrix[receiver, sender] += fraction
            matrix[sender, sender] -= fraction
    assert np.allclose(matrix.sum(axis=1), 1), "or the weights do not stay 1, and this is no reference"
    return matrix


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=RATE)


def heavy(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=RATE, momentum=0.9)


class Lockstep:
    """What each peer does: so many steps, one answered before the next; results are the values after each step."""

    def __init__(
        self,
        steps: int = STEPS,
        make: Make = sgd,
        rate: Callable[[int], float] | None = None,
        after: Callable[[Peer, Vectors], None] | None = None,
    ) -> None:
        self._steps, self._make, self._rate, self._after = steps, make, rate, after
        self._end = threading.Barrier(N)

    def __call__(self, peer: Peer) -> np.ndarray:
        model = Vectors(np.random.default_rng(peer.rank).normal(size=SIZE))
        optimizer = self._make(model.parameters())
        peer.attach(model, optimizer)
        trace = []
        for _ in peer.batches(range(10_000), 1, 1):
            if peer.step == self._steps:
                break
            if self._rate is not None:
                for group in optimizer.param_groups:
                    group["lr"] = self._rate(peer.step)
            optimizer.zero_grad()
            # As in any step that takes longer than a round trip, all answers are there before the next push.
            assert peer._attached().session.driver.flush(LONGEST)
            loss_of(peer.rank, model.at()).backward()
            model.seen += peer.rank
            optimizer.step()
            trace.append(model.at().detach().numpy().copy())
            if self._after is not None:
                self._after(peer, model)
        self._end.wait(LONGEST)  # who leaves changes the schedule of those who have a step to go
        return np.stack(trace)


def run(algorithm: str, topology: str = "one-peer-exponential", *, shard_bytes: int = 64, **how: Any) -> np.ndarray:
    """Return the values of all peers after each step: [step, rank, component]."""
    setup = {name: how.pop(name) for name in ("run_dir", "checkpoint_every", "resume", "share") if name in how}
    exact = patient(shard_bytes=shard_bytes, weight_floor=0.0)
    results = swarm(N, Lockstep(**how), exact, topology=topology, algorithm=algorithm, **setup)
    return np.stack(results, axis=1)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """Check all steps of all peers."""
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
