"""The Accelerator of Hugging Face's accelerate as a peer of a swarm, for training loops that users write.

    with peers.join(alone=True) as peer:
        accelerator = GossipAccelerator(peer, gradient_accumulation_steps=2)
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
        for epoch in range(3):
            for batch in loader:
                ...
        peer.consensus()

Each process has an Accelerator that believes to be alone. `prepare` attaches the model, puts the swarm's batches in the
place of the training loader, and the schedulers on the swarm's clock. The first peer is the main process.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from gossip.errors import SettingsError
from peers.data.swarm_progress import SwarmProgress
from peers.integrations.swarm_loader import SwarmLoader
from peers.peer import Peer
from peers.rate_schedule import SwarmSchedule

__all__ = ["GossipAccelerator"]

_INTERVALS = ("step", "epoch")


class GossipAccelerator(Accelerator):
    """Prepares a model, its optimizer and its training data for a swarm: all arguments of Accelerator, and ``peer``.

    The first loader that `prepare` gets is that of the training data. Each loop over it is an epoch of the swarm.
    Further loaders stay whole at each peer.
    """

    def __init__(self, peer: Peer, *, interval: str = "step", **options: Any) -> None:
        """Make the Accelerator of a peer.

        Args:
            peer: of `peers.join`, without a model.
            interval: what the schedulers count: a "step" of the optimizer, or an "epoch".
            options: of Accelerator.
        """
        if interval not in _INTERVALS:
            raise SettingsError(f"interval must be one of {', '.join(_INTERVALS)}, not {interval!r}")
        self.peer = peer
        self._interval = interval
        self._loader: SwarmLoader | None = None
        self._model: torch.nn.Module | None = None
        self._attached = False
        self._trackers_wanted: tuple[Any, ...] | None = None
        super().__init__(**{"cpu": peer.device.type == "cpu", **options})
        self._check()
        peer.at_end(functools.partial(_tell_state, 0))

    def _check(self) -> None:
        """Refuse what would train apart from the other peers, or twice with them."""
        if self.distributed_type != DistributedType.NO or self.num_processes > 1:
            raise SettingsError(
                f"num_processes={self.num_processes} and distributed_type={self.distributed_type}: accelerate has "
                "found other processes and would train with them by itself. Call peers.join(alone=True) before "
                "anything of accelerate is made, and start the script by gossip launch, torchrun or srun"
            )
        if self.device.type != self.peer.device.type:
            raise SettingsError(
                f"device={self.device} is what accelerate has chosen, and the peer has chosen {self.peer.device}: give "
                "cpu=True to the GossipAccelerator and device='cpu' to peers.join, or neither"
            )

    # What is prepared

    def prepare(self, *objects: Any, **options: Any) -> Any:
        """Prepare as Accelerator does. With the optimizer, the model becomes this peer's replica.

        The optimizer comes in one call with the training loader and the schedulers; the model in the same call or an
        earlier one. Returns when all peers are there.
        """
        given = [self._taken(one) for one in objects]
        optimizers = [one for one in objects if isinstance(one, torch.optim.Optimizer)]
        schedulers = [place for place, one in enumerate(objects) if isinstance(one, LRScheduler)]
        if optimizers:
            self._check_optimizers(optimizers, objects)
        elif schedulers:
            raise SettingsError(
                f"{type(objects[schedulers[0]]).__name__} is given to prepare without its optimizer: prepare the "
                "optimizer, the training loader and the schedulers in one call"
            )
        schedules = {place: self._scheduled(objects[place]) for place in schedulers}
        for place, schedule in schedules.items():
            given[place] = schedule
        prepared = super().prepare(*given, **options)
        results = prepared if len(given) > 1 else (prepared,)
        models = [one for one in results if isinstance(one, torch.nn.Module)]
        self._model = models[-1] if models else self._model
        if optimizers:
            assert self._model is not None
            also = {f"schedule-{number}": one for number, one in enumerate(schedules.values())}
            self._attached = True
            self.peer.attach(self._model, optimizers[0], also=also)
            self._tell()
        return prepared

    def _taken(self, given: Any) -> Any:
        """Return what is prepared for an object: for the first loader, the swarm's."""
        if not isinstance(given, DataLoader) or self._loader is not None:
            return given
        self._loader = SwarmLoader(self, given)
        return self._loader

    def _check_optimizers(self, optimizers: list[Any], objects: tuple[Any, ...]) -> None:
        models = [one for one in objects if isinstance(one, torch.nn.Module)]
        given = ", ".join(type(one).__name__ for one in objects)
        if len(optimizers) > 1 or self._attached:
            raise SettingsError(
                f"{given}: prepare got {len(optimizers) + self._attached} optimizers, and a peer has one: put "
                "all parameters into groups of one optimizer"
            )
        if len(models) > 1 or (self._model is None and not models):
            raise SettingsError(
                f"{given}: prepare got {len(models)} models with the optimizer, and a peer has one: prepare the "
                "model and the optimizer in one call, other models in a call of their own after it"
            )
        if self._loader is None:
            raise SettingsError(
                f"{given}: prepare got no loader of training data with the optimizer, or before it. Prepare the "
                "optimizer, the training loader and the schedulers in one call"
            )

    def _scheduled(self, scheduler: LRScheduler) -> SwarmSchedule:
        assert self._loader is not None
        in_epoch = math.ceil(len(self._loader) / self.gradient_accumulation_steps)
        clock = _Clock(self.peer, self.gradient_accumulation_steps)
        schedule = _Schedule(scheduler, clock, in_epoch if self._interval == "step" else 1, every_loop=True)
        if self._interval == "step":
            self._loader.at_ends.append(schedule.check)
        return schedule

    # The first peer writes

    @property
    def is_main_process(self) -> bool:
        """Whether this is the peer that writes; another one may become that."""
        self._tell()
        return self.peer.is_first

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the peer that writes: one for all machines."""
        return self.is_main_process

    def _tell(self) -> None:
        """Tell what asks accelerate's state, such as its loggers, who the main process is."""
        _tell_state(0 if self.peer.is_first else max(self.peer.rank, 1))

    def on_main_process(self, function: Callable[..., Any] | None = None) -> Any:
        """Decorate a function that the first peer alone carries out, whoever that is by then."""

        @functools.wraps(function)  # type: ignore[arg-type]
        def if_first(*arguments: Any, **named: Any) -> Any:
            return function(*arguments, **named) if function is not None and self.is_main_process else None

        return if_first

    on_local_main_process = on_main_process

    def print(self, *arguments: Any, **named: Any) -> None:
        """Print, if this is the first peer."""
        if self.is_main_process:
            print(*arguments, **named)  # noqa: T201 - what print is there for

    def init_trackers(self, *arguments: Any, **named: Any) -> None:
        """Begin to track, if this is the first peer, or once it is."""
        self._trackers_wanted = (arguments, named)
        self._track()

    def _track(self) -> bool:
        """Return whether this peer tracks."""
        if not self.is_main_process:
            return False
        if self._trackers_wanted is not None:
            (arguments, named), self._trackers_wanted = self._trackers_wanted, None
            super().init_trackers(*arguments, **named)
        return True

    def log(self, values: dict[str, Any], *arguments: Any, **named: Any) -> None:
        """Log to the trackers, if this is the first peer."""
        if self._track():
            super().log(values, *arguments, **named)

    def save(self, *arguments: Any, **named: Any) -> None:
        """Save an object, if this is the first peer."""
        if self.is_main_process:
            super().save(*arguments, **named)

    def save_state(self, *arguments: Any, **named: Any) -> Any:
        """Save the state of this peer's Accelerator, if this is the first peer: a copy, not to resume from."""
        return super().save_state(*arguments, **named) if self.is_main_process else None

    def load_state(self, input_dir: str | None = None, *_: Any, **__: Any) -> None:
        """Refuse: such a state does not hold where the swarm is in its data.

        Raises:
            SettingsError: Always.
        """
        raise SettingsError(
            f"input_dir={input_dir!r}: a state of accelerate does not hold where the swarm is in its data. Let the "
            "peer save and resume: peers.join(run_dir=..., checkpoint_every=100, resume=True), or gossip launch "
            "--checkpoint-every 100 --resume"
        )


def _tell_state(index: int) -> None:
    if PartialState._shared_state:
        PartialState._shared_state.update(process_index=index, local_process_index=index)


class _Clock:
    """The swarm's clock, for steps of several batches."""

    def __init__(self, peer: Peer, accumulation: int) -> None:
        self._peer, self._accumulation = peer, accumulation

    @property
    def progress(self) -> SwarmProgress:
        now = self._peer.progress
        return replace(now, step_share=now.step_share * self._accumulation)


class _Schedule(SwarmSchedule):
    """A schedule of steps that notices a script which steps it once in an epoch."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._calls = 0
        super().__init__(*arguments, **named)

    def step(self) -> None:
        self._calls += 1
        super().step()

    def check(self, steps: int) -> None:
        """Raise an error if the script has stepped less than every other of its steps in an epoch, but has."""
        calls, self._calls = self._calls, 0
        if steps >= 4 and 0 < calls < steps // 2:
            raise SettingsError(
                f"scheduler: the script called step() {calls} times in an epoch of {steps} steps of the optimizer: if "
                "it counts epochs, say GossipAccelerator(peer, interval='epoch')"
            )
