"""The learning rate of a swarm: linear in its size, after a warm-up, and following when the size changes.

Goyal et al. 2017, "Accurate, large minibatch SGD", arXiv:1706.02677: when n peers together take steps of an n times
larger batch, the rate is n times that of one; and since that is too much for a fresh model, it grows linearly over the
first epochs, from the rate of one.

In a swarm that loses and wins peers n is not a constant. Each time it changes, the factor goes linearly from where it
is to the new target; a jump would be a shock to momentum, up or down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer

from gossip.errors import SettingsError

__all__ = ["LinearScaling", "Members"]


class Members(Protocol):
    """Somebody who knows who takes part: a `peers.Peer`, for one."""

    @property
    def view(self) -> tuple[int, ...]:
        """The ranks that take part."""


class LinearScaling(LRScheduler):
    """Multiplies the rates by size / reference, with ramps.

    It multiplies what it finds by how its factor changed, so that it goes together with schedulers that do likewise,
    such as `StepLR` and `ExponentialLR`. As with all of torch's: make it before you load an optimizer's state.

    Attributes:
        factor: what the rates of one peer are multiplied by at present.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        size: Members | Callable[[], int],
        *,
        warmup: int = 0,
        ramp: int = 100,
        reference: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        """Begin with the rate of the reference, or with the target where that is less or there is no warm-up.

        Args:
            optimizer: whose rates are meant for ``reference`` peers.
            size: a peer, or what returns how many peers there are now.
            warmup: in how many calls of `step` the first target is reached: steps, or epochs if you call it once
                in each. About 5 epochs in the paper.
            ramp: in how many calls a changed target is reached, and not before the warm-up ends. Shorter follows
                sooner, longer forgives a peer that is gone for a moment.
            reference: the number of peers that the optimizer's rate was chosen for.
            last_epoch: as for all schedulers.
        """
        if warmup < 0 or ramp < 0:
            raise SettingsError(f"warmup and ramp are numbers of steps, 0 or more, not {warmup} and {ramp}")
        if not 0 < reference < float("inf"):
            raise SettingsError(f"reference is a number of peers, above 0, not {reference}")
        self._size = size if callable(size) else lambda: len(size.view)
        self._warmup, self._ramp, self._reference = warmup, ramp, reference
        self._peers = self._ask(1)
        target = self._peers / reference
        #: What is in the rates already.
        self.factor = 1.0
        #: The ramp: from which factor to which, between which counts of `step`.
        self._from, self._to = (min(1.0, target) if warmup else target), target
        self._begin, self._end = 0, warmup
        if last_epoch >= 0:  # the rates are those of a run that goes on
            self.last_epoch = last_epoch
            self.factor = self._planned()
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | torch.Tensor]:
        """Return the rates of the groups at this step."""
        peers = self._ask(self._peers)
        if peers != self._peers:
            # From what is in the rates now, which belongs to the step before.
            self._peers = peers
            self._from, self._to = self.factor, peers / self._reference
            self._begin = self.last_epoch - 1
            self._end = max(self._begin + self._ramp, self._warmup)
        change = self._planned() / self.factor
        self.factor = self._planned()
        return [group["lr"] * change for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return all but the optimizer and who is asked for the size."""
        return {key: value for key, value in super().state_dict().items() if key != "_size"}

    def _ask(self, last: int) -> int:
        """Return the size; the last one while nobody is there, as before the first hello."""
        return int(self._size()) or last

    def _planned(self) -> float:
        if self.last_epoch >= self._end:
            return self._to
        return self._from + (self._to - self._from) * (self.last_epoch - self._begin) / (self._end - self._begin)
