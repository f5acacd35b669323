"""A loop of the script's own, without `peer.batches`: what resumes equals what was never interrupted, bit for bit."""

from __future__ import annotations

import copy
import io
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from swarms import Meeting
from torch import nn
from torch.optim.swa_utils import AveragedModel

from peers import Peer

STEPS = 10


class Loader:
    """As a stateful loader is: it knows how many batches it has handed out. They are drawn as they are fetched."""

    def __init__(self) -> None:
        self.handed = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.handed < STEPS:
            self.handed += 1
            yield self.handed + torch.randn(8, 3)

    def state_dict(self) -> dict[str, Any]:
        return {"handed": self.handed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.handed = state["handed"]


class Interrupted(Exception):
    """As a crash of the script."""


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))


class Bare(nn.Module):
    """Is never called: the script computes with its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))


def compute(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    if isinstance(model, Bare):
        return nn.functional.dropout(batch @ model.weight)
    found: torch.Tensor = model(batch)
    return found


def trained(
    directory: Path | None,
    make: Callable[[], nn.Module] = network,
    after_step: Callable[[Peer, nn.Module], None] = lambda *_: None,
    after_loop: Callable[[Peer], object] = lambda _: None,
    **setup: Any,
) -> dict[str, Any]:
    """Train, and return all that there is in the end."""
    torch.manual_seed(0)
    setup = {"run_dir": str(directory), "checkpoint_every": 3, **setup} if directory else {}
    with Meeting(1).peer(0, **setup) as peer:
        model, loader = make(), Loader()
        inner = getattr(model, "_orig_mod", model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        averaged = AveragedModel(inner)
        also = {"scheduler": scheduler, "loader": loader, "scaler": scaler, "averaged": averaged}
        peer.attach(model, optimizer, also)
        began = peer.step
        for batch in loader:
            if (checkpoints := peer._attached().saving._checkpoints) is not None:
                checkpoints.wait()  # otherwise so fast a loop would skip some
            optimizer.zero_grad()
            scaler.scale(compute(model, batch).square().mean()).backward()
            scaler.step(optimizer)
            after_step(peer, inner)
            scaler.update()
            scheduler.step()
            averaged.update_parameters(inner)
            with torch.no_grad():
                for one in inner.parameters():
                    one.clamp_(-0.5, 0.5)
        after_loop(peer)
        states = {"model": inner, "averaged": averaged, "optimizer": optimizer, "scaler": scaler}
        return {
            **{name: copy.deepcopy(one.state_dict()) for name, one in states.items()},
            "scheduler": scheduler.state_dict(),
            "random": torch.get_rng_state(),
            "began": began,
        }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def fails_at(step: int) -> Callable[[Peer, nn.Module], None]:
    def fail(peer: Peer, _: nn.Module) -> None:
        if peer.step == step:
            raise Interrupted

    return fail


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": network,
    "compiled": lambda: torch.compile(network(), backend="eager"),
    "bare": Bare,
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("interrupted", "resumed"), [(4, 3), (6, 3), (7, 6), (8, 6)])
def test_a_run_that_resumes_equals_one_that_was_not_interrupted(
    tmp_path: Path, kind: str, interrupted: int, resumed: int
) -> None:
    """At the sixth step the script fails before its scheduler has stepped: then there is no checkpoint of that step."""
    expected = trained(None, MODELS[kind])
    with pytest.raises(Interrupted):
        trained(tmp_path, MODELS[kind], fails_at(interrupted))
    found = trained(tmp_path, MODELS[kind], resume=True)
    assert (found.pop("began"), expected.pop("began")) == (resumed, 0)
    for name in expected:
        assert same(found[name], expected[name]), name


def test_who_is_asked_to_stop_stops_when_the_script_is_through_with_the_step(tmp_path: Path) -> None:
    def ask(peer: Peer, _: nn.Module) -> None:
        peer._stop.number = signal.SIGTERM if peer.step >= 4 else 0

    expected = trained(None)
    with pytest.raises(SystemExit):
        trained(tmp_path, after_step=ask)
    found = trained(tmp_path, resume=True)
    assert (found.pop("began"), expected.pop("began")) == (5, 0)
    for name in expected:
        assert same(found[name], expected[name]), name


@pytest.mark.parametrize("end", [lambda _: None, lambda peer: peer.consensus()])
def test_the_checkpoint_of_the_last_step_is_complete_at_the_end(tmp_path: Path, end: Callable[[Peer], object]) -> None:
    expected = trained(tmp_path, checkpoint_every=STEPS, after_loop=end)
    found = trained(tmp_path, resume=True)
    assert found.pop("began") == STEPS
    for name in found:
        assert same(found[name], expected[name]), name


def test_between_a_step_and_the_next_pass_a_model_can_be_copied_stored_and_evaluated(tmp_path: Path) -> None:
    evaluated = []

    def look(peer: Peer, model: nn.Module) -> None:
        file = io.BytesIO()
        torch.save(model, file)
        assert b"peers" not in file.getvalue(), "whoever loads it does not need this package"
        file.seek(0)
        for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
            assert torch.equal(other.eval()(torch.ones(1, 3)), copy.deepcopy(model).eval()(torch.ones(1, 3)))
            other.train()(torch.ones(2, 3))  # of no concern to the peer
        with torch.random.fork_rng():
            peer.evaluate(lambda: evaluated.append(peer.step))

    def looked(peer: Peer, model: nn.Module) -> None:
        with torch.random.fork_rng():
            look(peer, model)
        if peer.step == 8:
            raise Interrupted

    expected = trained(None)
    with pytest.raises(Interrupted):
        trained(tmp_path, after_step=looked)
    assert evaluated[-1] == 8
    found = trained(tmp_path, resume=True)
    assert (found.pop("began"), expected.pop("began")) == (6, 0)
    for name in expected:
        assert same(found[name], expected[name]), name
