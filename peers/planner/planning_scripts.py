"""The best grid for a training script as it stands, for ``gossip launch --grid auto``.

python -m peers.planner.planning_scripts REQUEST ANSWER: both are files of JSON. The script is run in this process as a
swarm of one, up to the first pass of its model. That shows the model, a batch, the optimizer, and in which way the
script spreads the model over a crew. The functions that would spread it do nothing here, because the planner reads the
whole model.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

import peers
from gossip.errors import GossipError, SettingsError
from peers.peer import Peer
from peers.planner.model_reading import InputShape
from peers.planner.planning_splits import GridPlan, plan

__all__ = ["grid_for"]

#: Where torch and this package have the functions that spread a model, and the planner's kinds of each.
_SPREADING = {
    ("torch.distributed.fsdp", "fully_shard"): ("fsdp",),
    ("torch.distributed.tensor.parallel", "parallelize_module"): ("tensor", "mixed"),
    ("peers", "split_rows"): ("domain",),
}
_NAME_IT = "name the grid, as in --grid 2x4"


class _PassBegins(BaseException):
    """The script's model begins its first pass. Not an Exception, so that the script does not catch it."""


class _Reading:
    """What a script shows of itself before its first step."""

    def __init__(self) -> None:
        self.model: nn.Module | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.batch: torch.Tensor | None = None
        #: The functions that were called to spread the model.
        self.spreading: list[tuple[str, str]] = []
        self._hook: RemovableHandle | None = None

    def patch(self) -> None:
        """Look on while the script runs. For a process that does nothing else."""
        for place in _SPREADING:
            module = __import__(place[0], fromlist=[place[1]])
            setattr(module, place[1], self._spreads(place))
        attach = Peer.attach

        def attached(peer: Peer, model: Any, optimizer: Any, *args: Any, **more: Any) -> Any:
            found = attach(peer, model, optimizer, *args, **more)
            self.model, self.optimizer = model, optimizer
            self._hook = model.register_forward_pre_hook(self._passes, prepend=True)
            optimizer.register_step_pre_hook(self._steps)
            return found

        setattr(Peer, "attach", attached)  # noqa: B010 - so that the types of the original hold elsewhere

    def _spreads(self, place: tuple[str, str]) -> Callable[..., Any]:
        def note(model: Any, *_: Any, **__: Any) -> Any:
            if place not in self.spreading:
                self.spreading.append(place)
            return model

        return note

    def _passes(self, _: nn.Module, given: tuple[Any, ...]) -> None:
        self.batch = given[0] if given and isinstance(given[0], torch.Tensor) else None
        if self._hook is not None:
            self._hook.remove()  # the planner calls the model too
        raise _PassBegins

    def _steps(self, *_: Any) -> None:
        raise _PassBegins


def grid_for(script: str, arguments: list[str], *, module: bool, hosts: list[int], **planner: Any) -> dict[str, str]:
    """Return the grid that suits a script, and why. It changes what this process has of torch.

    Args:
        script: the path of a script, or the name of a module.
        arguments: of the script.
        module: whether it is a module.
        hosts: the slots of each host.
        planner: further arguments of `peers.plan`.
    """
    reading = _read(script, arguments, module)
    processes = sum(hosts)
    if not reading.spreading:
        return {
            "grid": f"1x{processes}",
            "why": "the script does not spread its model over a crew, so each process holds a replica",
        }
    names = " and ".join(name for _, name in reading.spreading)
    if len(reading.spreading) > 1:
        raise SettingsError(f"{script} spreads its model by {names}, which the planner cannot weigh: {_NAME_IT}")
    if reading.model is None or reading.batch is None:
        raise SettingsError(
            f"{script} makes a step, but its model was not called with a tensor, so it cannot be planned: {_NAME_IT}"
        )
    batch = reading.batch
    each, sides = batch.shape[0], list(batch.shape[1:]) or [1]
    shape = InputShape(sides, integers=not batch.is_floating_point())
    text = f"{'int:' if shape.integers else ''}{'x'.join(map(str, shape))}"
    found = plan(
        reading.model.cpu(),
        batch=each * processes,
        hosts=hosts,
        shape=text,
        optimizer=_kind_of(reading.optimizer),
        kinds=_SPREADING[reading.spreading[0]],
        **planner,
    )
    return _said(script, found, each, names)


def _said(script: str, found: GridPlan, each: int, names: str) -> dict[str, str]:
    best, why = found.choice.best, found.choice.why
    if best is None:
        raise SettingsError(f"{script}: {why[:1].lower()}{why[1:-1]}; use more processes, or {_NAME_IT}")
    about = f"{found.choice.job.weights:,} weights spread by {names}, {each} samples a step for each process"
    return {"grid": str(best.grid), "why": f"{why[:-1]} ({about})"}


def _kind_of(optimizer: torch.optim.Optimizer | None) -> str:
    """Return the planner's name for the memory that an optimizer takes."""
    if isinstance(optimizer, torch.optim.SGD):
        return "momentum" if any(group["momentum"] for group in optimizer.param_groups) else "sgd"
    return "adam"  # as any other that is not known: two values for each weight


def _read(script: str, arguments: list[str], module: bool) -> _Reading:
    """Run a script up to the first pass of its model."""
    reading = _Reading()
    reading.patch()
    join = peers.join
    # Alone, whatever started the launcher; and without what only the processes of the run have, such as a directory.
    peers.join = lambda *_, **__: join({})
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path.cwd() if module else Path(script).resolve().parent))
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except _PassBegins:
        return reading
    except (SystemExit, GossipError) as end:
        why = f"exit code {end.code}" if isinstance(end, SystemExit) else str(end)
        raise SettingsError(f"{script} ended before its model computed ({why}): {_NAME_IT}") from end
    except Exception as error:
        raise SettingsError(
            f"{script} failed before its model computed ({type(error).__name__}: {error}): {_NAME_IT}"
        ) from error
    raise SettingsError(f"{script} ended, and no model was trained after peer.attach: {_NAME_IT}")


def main() -> None:
    """Answer the request of a launcher."""
    request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    answer = Path(sys.argv[2])
    try:
        found = grid_for(**request)
    except GossipError as error:
        found = {"error": str(error)}
    answer.write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()
