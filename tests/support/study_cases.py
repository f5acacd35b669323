"""Small runs of the study on points around ten centres, and a dense reference for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from benchmarks.study.run import Outcome, Run
from benchmarks.study.swarm import TrainingSwarm
from benchmarks.study.tasks import TASKS, batches, deal

N, RATE, BATCH, MOMENTUM = 4, 0.05, 10, 0.9


def small(algorithm: str, topology: str = "one-peer-exponential", rounds: int = 30, **options: object) -> Run:
    """Return a run in which each of four peers makes a number of steps."""
    run = Run(algorithm, topology, N, RATE, 0, rounds * N * BATCH, task="clouds", batch=BATCH, jitter=0.0)
    return run.but(**options)


def trained(run: Run) -> tuple[TrainingSwarm, Outcome]:
    swarm = TrainingSwarm(run)
    return swarm, swarm.train()


def replicas(swarm: TrainingSwarm) -> np.ndarray:
    """Return every peer's weights and biases, a row each."""
    rows = [swarm._trainers[rank].learner.model.parameters() for rank in sorted(swarm.processes)]
    return np.stack([np.concatenate([one.detach().numpy().ravel() for one in row]) for row in rows])


def outcome(percent: float = 82.0, **changes: object) -> Outcome:
    """Return what might have come out of a run."""
    fields: dict[str, object] = {
        "accuracy": percent,
        "validation_loss": 0.5,
        "losses": [0.9, 0.6, 0.5],
        "curve": [(100, 1.0, 60.0), (200, 2.0, 80.0), (300, 3.0, percent)],
        "diverged": False,
        "virtual_seconds": 3.0,
        "steps": (10, 12),
        "bytes": 1000,
        "disagreement": 0.01,
        "weight_min": 0.5,
        "weight_max": 1.5,
        "book_error": 0.0,
        "cpu_seconds": 1.0,
    }
    return Outcome(**{**fields, **changes})  # type: ignore[arg-type]


class Reference:
    """Softmax regression of one peer, with Nesterov's momentum, by its formulas in numpy."""

    def __init__(self, run: Run, rank: int) -> None:
        task = TASKS[run.task]()
        mine = deal(task.kinds, run.peers, run.dirichlet, run.seed)[rank]
        self.data: Iterator[tuple[Tensor, Tensor]] = batches(task, mine, run.batch, run.seed, rank)
        start = [one.detach().numpy() for one in task.model(run.seed).parameters()]
        self.z = np.concatenate([one.ravel() for one in start])
        self.shape = start[0].shape
        self.velocity = np.zeros_like(self.z)

    def gradient(self) -> np.ndarray:
        points, labels = (one.numpy() for one in next(self.data))
        classes, size = self.shape
        weights, biases = self.z[: classes * size].reshape(self.shape), self.z[classes * size :]
        scores = np.exp(points @ weights.T + biases)
        wrong = (scores / scores.sum(1, keepdims=True) - np.eye(classes)[labels]) / len(labels)
        return np.concatenate([(wrong.T @ points).ravel(), wrong.sum(0)])

    def move(self, gradient: np.ndarray, rate: float = RATE) -> np.ndarray:
        self.velocity = MOMENTUM * self.velocity + gradient
        return -rate * (gradient + MOMENTUM * self.velocity)
