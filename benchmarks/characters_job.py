"""The job of a worker that trains a GPT on Python sources in real time, as the study does in virtual time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from benchmarks.processes import Answer
from benchmarks.study.learner import Learner
from benchmarks.study.run import Run
from benchmarks.study.tasks import TASKS, Task, batches, deal
from benchmarks.swarm_methods import method

__all__ = ["BATCH", "characters"]

BATCH = 12
#: A gradient takes about three times as long as the forward pass that it begins with.
_PASSES = 3

Values = dict[str, Tensor]


def characters(rank: int, n: int, task: dict[str, Any]) -> Answer:
    """Train, and return the validation loss of what all have agreed on, and of rank 0's model on the way.

    The task says ``size``, ``seed``, ``steps``, ``schedule`` (of the rate, over these steps) and ``lr``. It may say
    ``every``, the number of steps after which the model is kept, to tell how its loss fell with time; ``seconds``, for
    which to train in the place of the steps; and ``slow``, a rank that computes ``factor`` times as long.
    """
    steps, limit, every = task["steps"], task.get("seconds"), task.get("every", task["steps"])
    run = Run(task["method"], "", n, task["lr"], task["seed"], steps * n * BATCH, f"characters-{task['size']}", BATCH)
    learnt = TASKS[run.task]()
    data = batches(learnt, deal(learnt.kinds, n, 0.0, run.seed)[rank], BATCH, run.seed, rank)
    taken = 0
    learner = Learner(
        learnt, data, run.but(optimizer="adamw", clip=1.0, schedule=task["schedule"]), lambda: (taken + 1) / steps
    )
    way = method(rank, n, task)
    training = way.attach(learner.model, learner.optimizer)
    learner.called = _slowed(training, task["factor"]) if task.get("slow") == rank else training
    kept: list[tuple[int, float, Values]] = []
    began = time.monotonic()
    for taken in itertools.count():
        learner.compute()
        learner.clip()
        learner.optimizer.step()
        if (taken + 1) % every:
            continue
        elapsed = time.monotonic() - began
        if rank == 0:
            kept.append((taken + 1, elapsed, _values(learner.model)))
        if taken + 1 >= steps if limit is None else way.over(elapsed >= limit):
            break
    seconds = time.monotonic() - began
    own = _values(learner.model)
    apart = way.agree()
    agreed = _values(learner.model)
    way.close()
    if rank != 0:  # what it would tell is what rank 0 tells
        return {"seconds": seconds}
    return {
        "seconds": seconds,
        "steps": taken + 1,
        "loss": _loss(learnt, agreed),
        "own": _loss(learnt, own),
        "apart": apart,
        "curve": [(step, at, _loss(learnt, values)) for step, at, values in kept],
    }


def _slowed(model: nn.Module, factor: float) -> Callable[[Tensor], Tensor]:
    """Return a model after whose forward pass one waits until a slow machine would be at the end of the gradient.

    The wait comes before the gradient is averaged with others, as on a slow machine.
    """

    def called(inputs: Tensor) -> Tensor:
        began = time.monotonic()
        outputs: Tensor = model(inputs)
        time.sleep((factor - 1) * _PASSES * (time.monotonic() - began))
        return outputs

    return called


def _values(model: nn.Module) -> Values:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _loss(task: Task, values: Values) -> float:
    model = task.model(0)
    model.load_state_dict(values)
    return task.score(model).loss
