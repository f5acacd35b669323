"""Learning rate schedules on the swarm's clock: all peers decay together, however many steps each of them makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from gossip.errors import SettingsError
from peers.data.swarm_progress import SwarmProgress
from peers.model.attachable import plain_optimizer

__all__ = ["SwarmClock", "SwarmSchedule"]


class SwarmClock(Protocol):
    """Something that knows how far the swarm is, such as a `peers.Peer`."""

    @property
    def progress(self) -> SwarmProgress:
        """How far the swarm is in its last loop over data."""


class SwarmSchedule:
    """A scheduler of torch, written for a number of steps, that advances with the fraction that the swarm has done.

    A scheduler counts the steps of its own process. In a swarm these differ: a peer that is four times slower makes a
    quarter of the steps, and one that was restarted begins at 0, so neither would ever decay. This one looks before
    each step of the optimizer how far the swarm is in its loop over `Peer.batches`, and lets the scheduler make as many
    of its steps as belong to that.

    It needs no calls. Calling `step` after ``optimizer.step()``, as for all schedulers, does no harm. It follows the
    loop that runs when it is made, or else the next one that begins. In ``also`` of `Peer.attach`, checkpoints hold it.

    Example:
        ```python
        steps = epochs * len(dataset) // batch_size  # of one process that trains alone
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)
        schedule = peers.SwarmSchedule(scheduler, peer, steps)
        peer.attach(model, optimizer, also={"schedule": schedule})
        ```
    """

    def __init__(self, scheduler: LRScheduler, peer: SwarmClock, steps: int, *, every_loop: bool = False) -> None:
        """Take the scheduler over: nothing else may step it.

        Args:
            scheduler: any scheduler that counts steps, just made: LambdaLR, CosineAnnealingLR, OneCycleLR, SequentialLR
                and so on.
            peer: whose swarm has the clock.
            steps: the number of steps that the scheduler was written for, from the beginning to the end of the loop.
            every_loop: follow all further loops too, each of this number of steps, for scripts with a loop over
                ``peer.batches(dataset, 32, epochs=1)`` in each epoch.
        """
        if isinstance(scheduler, ReduceLROnPlateau) or not isinstance(scheduler, LRScheduler):
            raise SettingsError(
                f"scheduler: {type(scheduler).__name__} does not count steps, so it cannot follow the swarm's clock. "
                "Give a scheduler such as LambdaLR or CosineAnnealingLR, and step any other one yourself"
            )
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise SettingsError(f"steps must be a whole number of at least 1, not {steps!r}")
        self._scheduler, self._peer, self._steps = scheduler, peer, steps
        self._last = math.inf if every_loop else 1.0
        now = peer.progress
        running = now.loop >= 0 and now.fraction < 1
        #: The loop that is followed, or the first of them.
        self._loop = now.loop if running else now.loop + 1
        #: How much of it is done, in loops, and the steps that the scheduler has made for that.
        self._clock, self._made = 0.0, 0
        plain_optimizer(scheduler.optimizer).register_step_pre_hook(self._before_step)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer whose rates it sets."""
        return self._scheduler.optimizer

    def _before_step(self, *_: Any) -> None:
        self._advance()
        self._clock += self._peer.progress.step_share  # a step counts for those after it

    def step(self) -> None:
        """Let the scheduler make the steps that belong to what the swarm has done."""
        self._advance()

    def _advance(self) -> None:
        now = self._peer.progress
        if math.isnan(now.step_share):
            raise SettingsError(
                f"{type(self._scheduler).__name__} cannot follow the swarm's clock here: with allreduce that counts "
                "steps, and nobody knows how many a loop over data shards takes. Step it without SwarmSchedule"
            )
        if not now.step_share:
            self._clock = max(self._clock, now.loop - self._loop + now.fraction)
        # A sum of shares may be a little less than the whole number that it should be.
        due = int(min(self._clock, self._last) * self._steps + 1e-6)
        while self._made < due:
            self._made += 1
            self._scheduler.step()

    def get_last_lr(self) -> Sequence[float | torch.Tensor]:
        """Return the present rate of each group of the optimizer."""
        return self._scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the scheduler, and where it is on the swarm's clock."""
        return {
            "clock": self._clock,
            "made": self._made,
            "loop": self._loop,
            "steps": self._steps,
            "scheduler": self._scheduler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of a schedule for as many steps."""
        if state["steps"] != self._steps:
            raise SettingsError(
                f"steps={self._steps}, and the state is that of a schedule for {state['steps']} steps: resume with the "
                "same number, or make a new schedule and do not load its state"
            )
        self._scheduler.load_state_dict(state["scheduler"])
        self._clock, self._made, self._loop = float(state["clock"]), int(state["made"]), int(state["loop"])
