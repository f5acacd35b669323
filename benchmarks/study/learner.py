"""One peer's model, optimizer and data, and how a gradient becomes a move: as a training script has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.study.run import Run
from benchmarks.study.tasks import Batches, Task

__all__ = ["OPTIMIZERS", "SCHEDULES", "Learner"]

#: Of the warm-up, in shares of a run.
_WARM_UP = 0.05


def _sgd(model: nn.Module, run: Run) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=run.rate, momentum=run.momentum, nesterov=run.momentum > 0)


def _adamw(model: nn.Module, run: Run) -> torch.optim.Optimizer:
    matrices = [one for one in model.parameters() if one.dim() > 1]
    vectors = [one for one in model.parameters() if one.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=run.rate, betas=(0.9, 0.99))


class _Several(torch.optim.Optimizer):
    """Several optimizers as one, each with parameters of its own."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self._optimizers = optimizers
        super().__init__([group for one in optimizers for group in one.param_groups], {})

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Let each move."""
        for one in self._optimizers:
            one.step()


def _muon(model: nn.Module, run: Run) -> torch.optim.Optimizer:
    hidden = [one for name, one in model.named_parameters() if one.dim() == 2 and name.startswith("blocks.")]
    chosen = set(hidden)
    others = [one for one in model.parameters() if one not in chosen]
    matrices = torch.optim.Muon(hidden, lr=run.rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    return _Several(matrices, torch.optim.AdamW(others, lr=run.rate, betas=(0.9, 0.99), weight_decay=0.0))


#: AdamW is nanoGPT's: only matrices decay. Muon has the matrices of the blocks, with moves as long as AdamW's.
OPTIMIZERS: dict[str, Callable[[nn.Module, Run], torch.optim.Optimizer]] = {
    "sgd": _sgd,
    "adamw": _adamw,
    "muon": _muon,
}


def _cosine(lowest: float, progress: float) -> float:
    """Return the factor of a warm-up and then half a cosine down to the lowest."""
    if progress < _WARM_UP:
        return progress / _WARM_UP
    past = min(1.0, (progress - _WARM_UP) / (1 - _WARM_UP))
    return lowest + (1 - lowest) * (1 + math.cos(math.pi * past)) / 2


#: Factors of the rate, by the share of the run's samples that the swarm will have seen after the step.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "warm-up": lambda progress: min(1.0, progress / _WARM_UP),
    "cosine": partial(_cosine, 0.1),
    "cosine to 0": partial(_cosine, 0.0),
}


class Learner:
    """Computes gradients of a peer's samples, and has the optimizer that moves by them."""

    def __init__(self, task: Task, data: Batches, run: Run, progress: Callable[[], float]) -> None:
        """Make the model that all start with.

        Args:
            task: what is learnt.
            data: this peer's batches.
            run: which optimizer, rate, schedule and clipping.
            progress: the share of the run's samples that the swarm will have seen after this step.
        """
        self.model = task.model(run.seed)
        #: What computes the outputs: the model, or what wraps it.
        self.called: Callable[[Tensor], Tensor] = self.model
        self.optimizer = OPTIMIZERS[run.optimizer](self.model, run)
        #: Whether every loss was finite so far.
        self.finite = True
        self._task = task
        self._data = data
        self._longest = run.clip
        self._rate = run.rate
        self._schedule = SCHEDULES[run.schedule]
        self._progress = progress

    def compute(self) -> None:
        """Compute the gradient of the next batch, and set the rate of the move that follows."""
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate * self._schedule(self._progress())
        loss = self._task.loss(self.called, *next(self._data))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.finite = self.finite and math.isfinite(loss.item())

    def clip(self) -> None:
        """Shorten the gradient, which is now the one to move by, where it is too long."""
        if self._longest:
            nn.utils.clip_grad_norm_(self.model.parameters(), self._longest)
