"""The learning rate of a swarm: linear in its size, after a warm-up, and adapted when the size changes.

Goyal et al. 2017, "Accurate, large minibatch SGD", arXiv:1706.02677: when n peers together take steps of an n times
larger batch, the rate is n times that of one peer. Since that is too much for a new model, it grows linearly over the
first epochs, from the rate of one peer.

In a swarm that loses and gains peers n is not a constant. Each time it changes, the factor moves linearly from its
present value to the new target; a jump would disturb the momentum.
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
    """An object that knows the members of the swarm, such as a `peers.Peer`."""

    @property
    def view(self) -> tuple[int, ...]:
        """The ranks of the members."""


class LinearScaling(LRScheduler):
    """Multiplies the rates by size / reference, with ramps.

    It multiplies the present rates by the change of its factor, so that it works together with schedulers that do the
    same, such as `StepLR` and `ExponentialLR`. As with all schedulers of torch, make it before you load an optimizer's
    state.

    Attributes:
        factor: the present factor of the rates of one peer.
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
        """Begin with the rate of the reference, or with the target if that is less or there is no warm-up.

        Args:
            optimizer: the optimizer, with rates for ``reference`` peers.
            size: a peer, or a function that returns the present number of peers.
            warmup: the number of calls of `step` until the first target is reached: steps, or epochs if you call it
                once in each. About 5 epochs in the paper.
            ramp: the number of calls until a changed target is reached, but not before the warm-up ends. A shorter ramp
                adapts sooner; a longer one tolerates a peer that is gone for a moment.
            reference: the number of peers for which the optimizer's rate was chosen.
            last_epoch: as for all schedulers.
        """
        if warmup < 0 or ramp < 0:
            raise SettingsError(f"warmup and ramp must be 0 or more steps, not {warmup} and {ramp}")
        if not 0 < reference < float("inf"):
            raise SettingsError(f"reference, a number of peers, must be above 0, not {reference}")
        self._size = size if callable(size) else lambda: len(size.view)
        self._warmup, self._ramp, self._reference = warmup, ramp, reference
        self._peers = self._ask(1)
        target = self._peers / reference
        #: The factor that the present rates contain.
        self.factor = 1.0
        #: The ramp: its first and last factor, and its first and last count of `step`.
        self._from, self._to = (min(1.0, target) if warmup else target), target
        self._begin, self._end = 0, warmup
        if last_epoch >= 0:  # the rates are those of a run that continues
            self.last_epoch = last_epoch
            self.factor = self._planned()
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | torch.Tensor]:
        """Return the rates of the groups at this step."""
        peers = self._ask(self._peers)
        if peers != self._peers:
            # The ramp begins with the factor in the present rates, which belongs to the step before.
            self._peers = peers
            self._from, self._to = self.factor, peers / self._reference
            self._begin = self.last_epoch - 1
            self._end = max(self._begin + self._ramp, self._warmup)
        change = self._planned() / self.factor
        self.factor = self._planned()
        return [group["lr"] * change for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the state without the optimizer and the source of the size."""
        return {key: value for key, value in super().state_dict().items() if key != "_size"}

    def _ask(self, last: int) -> int:
        """Return the size, or the last one while it is 0, as before the first peers are known."""
        return int(self._size()) or last

    def _planned(self) -> float:
        if self.last_epoch >= self._end:
            return self._to
        return self._from + (self._to - self._from) * (self.last_epoch - self._begin) / (self._end - self._begin)
