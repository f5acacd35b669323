"""The parts of a peer in a checkpoint: when they are saved, and how they are restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from gossip.core.status import Status
from peers.checkpoints.checkpoint import CheckpointError, Checkpoints
from peers.checkpoints.saved_optimizer import check_same_kind, rates_differ, rates_of
from peers.crew.crew import Crew
from peers.data.loop_makers import LoopSource
from peers.methods.method import Method
from peers.model.spread import gather_parts
from peers.model.spread_state import (
    own_parts,
    placements_of,
    spread_model_state,
    spread_optimizer_state,
    spread_otherwise,
)
from peers.setup import Setup
from peers.state.random_states import capture_random_states, restore_random_states
from peers.state.snapshot import CheckpointSnapshot
from peers.state.state_dicts import flatten, unflatten
from peers.state.storable import copy_to_cpu

__all__ = ["Restored", "Saving", "Stateful"]


class Stateful(Protocol):
    """An object that can be saved and restored as torch's schedulers and scalers can."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Restore it."""


@dataclass(frozen=True)
class Restored:
    """The state of the gossip in a checkpoint."""

    step: int
    turns: list[int]


class Saving:
    """The checkpoints of one peer: ``RUN/rank-R/checkpoints``.

    A checkpoint that is due after a step is taken when the script is through with the step, so that its schedulers and
    counters are consistent with the optimizer: when it asks `Peer.batches` for its next batch, or, in a loop of its
    own, before the next pass of the model. By then such a loop has fetched its next batch. What that changes is noted
    before, right after the step: the random states, and the positions of loaders, which are those that iterate.

    Weights are saved only for information. A peer that resumes enters like a newcomer, with its z and a new weight of
    1: the mass that was in flight when the swarm stopped is lost, so the saved weights no longer add up.
    """

    def __init__(
        self,
        setup: Setup,
        crew: Crew,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        method: Method,
        also: dict[str, Stateful],
        directory: Path | None,
        warn: Callable[[str], None],
    ) -> None:
        self._every = setup.checkpoint_every
        self._crew = crew
        self._model = model
        self._optimizer = optimizer
        self._method = method
        self._also = also
        self._warn = warn
        self._device = next(iter(model.parameters())).device
        self._due: int | None = None
        #: A checkpoint that lacks what the script may still change, and its step.
        self._begun: tuple[int, CheckpointSnapshot] | None = None
        self._data: list[bytes] = []
        self._random: dict[str, Any] | None = None
        wanted = directory is not None and (setup.checkpoint_every or setup.resume)
        self._checkpoints = (
            Checkpoints(directory / "checkpoints", setup.checkpoint_keep, warn) if wanted and directory else None
        )

    def load(self) -> Restored | None:
        """Restore model, optimizer and all other objects from the newest undamaged checkpoint, if there is one."""
        snapshot = self._newest_of_all_rows()
        if snapshot is None:
            return None
        extra = snapshot.extra
        if self._crew.rows > 1 and (other := spread_otherwise(extra["placements"], self._model)) is not None:
            raise CheckpointError(
                f"the checkpoint is of a model that was spread over its rows in another way: {other}. Resume with the "
                "script that saved it, or begin a new run"
            )
        model = unflatten(snapshot.tensors, extra["model"], "model")
        _fit("model", self._model, spread_model_state(model, self._model))
        saved = unflatten(snapshot.tensors, extra["optimizer"], "optimizer")
        check_same_kind(self._optimizer, saved)
        saved = spread_optimizer_state(saved, self._optimizer)
        rates = rates_of(self._optimizer.param_groups)
        _fit("optimizer", self._optimizer, saved)
        if (told := rates_differ(rates, rates_of(self._optimizer.param_groups))) is not None:
            self._warn(told)
        self._method.optimizer_loaded()
        self._load_method(snapshot)
        for name, one in self._also.items():
            if name in extra["also"]:
                one.load_state_dict(unflatten(snapshot.tensors, extra["also"][name], f"also.{name}"))
        self._data = list(extra["data"])
        self._random = extra["random"]
        return Restored(extra["step"], list(extra["turns"]))

    def _newest_of_all_rows(self) -> CheckpointSnapshot | None:
        """Return the newest undamaged checkpoint of a step that every row of the crew has; None if no row has any."""
        limit: int | None = None
        while self._checkpoints is not None:
            snapshot = self._crew.together(partial(self._newest_of_this_row, limit))
            found = self._crew.gather(-1 if snapshot is None else snapshot.extra["step"])
            limit = min(found)
            if limit == max(found):
                return snapshot
            if limit < 0:
                raise CheckpointError(
                    f"the {self._crew.rows} rows of replica {self._crew.replica} have no checkpoint of the same step, "
                    f"and row {found.index(limit)} has none that is older: bring its checkpoints back, or begin a new "
                    "run"
                )
        return None

    def _newest_of_this_row(self, limit: int | None) -> CheckpointSnapshot | None:
        """Return this row's newest undamaged checkpoint up to a step; one of another kind of replica is refused."""
        assert self._checkpoints is not None
        snapshot = self._checkpoints.load(limit)
        if snapshot is not None and (rows := snapshot.extra.get("rows", 1)) != self._crew.rows:
            raise CheckpointError(
                f"the checkpoint is of a grid {rows}xREPLICAS, and the grid of this run is {self._crew.rows}xREPLICAS: "
                f"resume with --grid {rows}xREPLICAS and any number of replicas, or begin a new run"
            )
        return snapshot

    def _load_method(self, snapshot: CheckpointSnapshot) -> None:
        """Restore the algorithm's state, if the checkpoint has the same algorithm and shard layout."""
        saved = unflatten(snapshot.tensors, snapshot.extra.get("method"), "method") or {}
        name = type(self._method).__name__
        if saved.get("name") == name and saved["shards"] == len(snapshot.extra["turns"]):
            self._method.load_state_dict(saved["state"])
            self._method.restored = True
        elif self._method.state_dict() or saved.get("state"):
            self._warn("the checkpoint has a different algorithm or shard layout; the algorithm's state was reset")

    def restore_data(self, index: int, source: LoopSource) -> None:
        """Restore the position of a loop over data."""
        if index < len(self._data):
            source.restore(self._data[index])

    def restore_random(self) -> None:
        """Restore the random number generators again, since code may have drawn from them after `load`."""
        if self._random is not None:
            restore_random_states(self._random, self._device)

    def step_is_over(self, step: int) -> None:
        """Note that a step has ended; after every ``checkpoint_every`` steps a checkpoint is due."""
        self._random = None
        if self._checkpoints is not None and self._every and step % self._every == 0:
            self._due = step

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due."""
        return self._due is not None

    def begin_if_due(self, status: Status, loops: Sequence[LoopSource]) -> bool:
        """If a checkpoint is due, note for it what the next batch will change; return whether one has begun."""
        if self._due is None or self._checkpoints is None:
            return False
        step, self._due = self._due, None
        snapshot = CheckpointSnapshot(
            extra={
                "step": step,
                "weights": list(status.weights),
                "turns": list(status.turns),
                "also": {},
                "data": [loop.state() for loop in loops],
                "random": capture_random_states(self._device),
                "rows": self._crew.rows,
            }
        )
        self._add_also(snapshot, with_data=True)
        snapshot.tensors = {name: copy_to_cpu(tensor) for name, tensor in snapshot.tensors.items()}
        self._begun = step, snapshot
        return True

    def finish(self, *, last: bool = False) -> None:
        """Add everything else to a checkpoint that has begun, if there is one; it is written in the background.

        Args:
            last: this save must not be skipped, even if another one is still being written.
        """
        if self._begun is None or self._checkpoints is None:
            return
        (step, snapshot), self._begun = self._begun, None
        if last:
            self._checkpoints.wait()
        elif not self._crew.alone and self._crew.any(not self._checkpoints.wait(0)):
            # If only some rows skipped it, they could end up without any step in common.
            self._warn(f"the checkpoint of step {step} is skipped: a row still writes the one before")
            return
        shards = len(snapshot.extra["turns"])
        gather_parts(self._model)
        snapshot.extra["placements"] = placements_of(self._model)
        method = {"name": type(self._method).__name__, "shards": shards, "state": self._method.state_dict()}
        states = [("model", self._model.state_dict()), ("optimizer", self._optimizer.state_dict()), ("method", method)]
        for name, state in states:
            tensors, snapshot.extra[name] = flatten(own_parts(state), name)
            snapshot.tensors.update(tensors)
        self._add_also(snapshot, with_data=False)
        self._checkpoints.save(step, snapshot)

    def save_if_due(self, status: Status, loops: Sequence[LoopSource]) -> None:
        """Take a checkpoint, if one is due."""
        if self.begin_if_due(status, loops):
            self.finish()

    def save_last(self, step: int, status: Status, loops: Sequence[LoopSource]) -> None:
        """Take a checkpoint of the step with which the peer ends early, if it takes any: due or not."""
        self.last_is_due(step)
        if self.begin_if_due(status, loops):
            self.finish(last=True)

    def last_is_due(self, step: int) -> None:
        """Note that the peer ends early, with this step: a checkpoint of it is due, if the peer takes any."""
        if self._every:
            self._due = step

    def _add_also(self, snapshot: CheckpointSnapshot, *, with_data: bool) -> None:
        """Add the further objects that move with the data, or those that do not."""
        for name, one in self._also.items():
            if with_data == (isinstance(one, Iterable) and not isinstance(one, torch.nn.Module)):
                tensors, snapshot.extra["also"][name] = flatten(one.state_dict(), f"also.{name}")
                snapshot.tensors.update(tensors)

    def newest(self) -> int | None:
        """Return the step of the newest checkpoint on the disk, if there is one."""
        try:
            return max(self._checkpoints.steps(), default=None) if self._checkpoints is not None else None
        except OSError:  # the directory is gone, or was never made; that was reported when it was needed
            return None

    def close(self) -> None:
        """Wait until the present save is on the disk."""
        if self._checkpoints is not None:
            self._checkpoints.close()


def _fit(what: str, one: Stateful, state: dict[str, Any]) -> None:
    """Restore an object, or raise a `CheckpointError` that says that the script has another one now."""
    try:
        one.load_state_dict(state)
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{what}: the checkpoint does not fit this {type(one).__name__}: {error}. Resume with the script that "
            "saved it, or begin a new run"
        ) from error
