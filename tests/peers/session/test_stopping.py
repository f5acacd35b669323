"""A peer that is asked to stop ends at a step boundary, with a checkpoint, and without a traceback."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peer_script import train
from swarms import more_than, nothing_left
from torch import nn

import peers


def ask() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """See that neither the handler nor its thread outlives the peer."""
    left = nothing_left()
    yield
    assert more_than(left) == (set(), {})
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "rank-0" / "summary.json").read_text())
    return found


def recorded(run: Path, what: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rank-0" / f"{what}.jsonl").read_text().splitlines()]


def checkpoints(run: Path) -> list[str]:
    return sorted(one.name for one in (run / "rank-0" / "checkpoints").glob("step-*"))


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("step", "samples", "model", "optimizer", "scheduler", "draw")}


@pytest.mark.parametrize("every", [1000, 9], ids=["none was due", "one was due"])
def test_a_run_that_is_asked_to_stop_and_resumed_equals_one_that_was_not(
    tmp_path: Path, every: int, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"checkpoint_every": every, "seed": 3, "environment": {}, "stop_within": 60.0}
    whole = train(run_dir=str(tmp_path / "whole"), **options)
    run = tmp_path / "run"
    for interrupt_at in (9, 27):
        with pytest.raises(SystemExit) as end:
            train(run_dir=str(run), resume=True, interrupt_at=interrupt_at, **options)
        assert end.value.code == 130
        assert checkpoints(run)[-1] == f"step-{interrupt_at:08d}", "of the step that was under way, when it was over"
        assert (summary(run)["exit"], summary(run)["steps"]) == ("interrupted", interrupt_at)
        said = f"rank 0: stopped after step {interrupt_at} as asked, and saved that as a checkpoint"
        assert caplog.messages[-1] == said
    resumed = train(run_dir=str(run), resume=True, **options)
    assert resumed["began"] == 27
    assert comparable(resumed) == comparable(whole)
    assert [line["step"] for line in recorded(run, "metrics")] == list(range(1, 37)), "none twice, and none left out"
    assert [one["step"] for one in recorded(run, "events") if one["event"] == "resume"] == [9, 27], "for the report"


def loop(peer: peers.Peer, body: Callable[[int, torch.optim.Optimizer], None]) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peer.attach(model, optimizer)
    for number, x in enumerate(peer.batches(torch.ones(24, 2), 2, 1)):
        model(x).sum().backward()
        body(number, optimizer)
    raise AssertionError("it should have been stopped")


def stopped(run: Path, act: Callable[[peers.Peer], None], within: float = 60.0, every: int = 100) -> dict[str, Any]:
    """Let a peer act until it stops as asked; return its summary."""
    with (
        pytest.raises(SystemExit, match="130"),
        peers.join({}, run_dir=str(run), checkpoint_every=every, stop_within=within) as peer,
    ):
        act(peer)
    assert summary(run)["exit"] == "interrupted"
    return summary(run)


def test_gradients_that_are_half_accumulated_are_not_lost(tmp_path: Path) -> None:
    def body(number: int, optimizer: torch.optim.Optimizer) -> None:
        if number == 4:
            ask()
        if number % 3 == 2:
            optimizer.step()

    assert stopped(tmp_path, lambda peer: loop(peer, body))["steps"] == 2, "the second step is that of batch 5"
    assert checkpoints(tmp_path) == ["step-00000002"]


def test_a_loop_of_ones_own_stops_after_its_step(tmp_path: Path) -> None:
    def act(peer: peers.Peer) -> None:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        for number in range(9):
            if number == 4:
                ask()
            optimizer.step()

    assert stopped(tmp_path, act)["steps"] == 5
    assert checkpoints(tmp_path) == ["step-00000005"]


def test_without_checkpoints_it_stops_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def body(_: int, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        ask()

    assert stopped(tmp_path, lambda peer: loop(peer, body), every=0)["steps"] == 1
    assert caplog.messages == ["rank 0: stopped after step 1 as asked, without a checkpoint"]


def endless(_: int, optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    ask()
    while True:  # a long evaluation
        time.sleep(60)


def test_who_comes_to_no_boundary_ends_before_it_is_killed(tmp_path: Path) -> None:
    began = time.monotonic()
    assert stopped(tmp_path, lambda peer: loop(peer, endless), within=0.5)["steps"] == 1
    assert time.monotonic() - began > 0.25, "there was time for a boundary to come"
    assert checkpoints(tmp_path) == []


def test_a_second_request_is_not_waited_for(tmp_path: Path) -> None:
    def body(_: int, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        ask()
        ask()
        raise AssertionError("it should have ended")

    assert stopped(tmp_path, lambda peer: loop(peer, body))["steps"] == 1
    assert checkpoints(tmp_path) == []


def test_where_no_boundary_is_ahead_it_ends_at_once(tmp_path: Path) -> None:
    def mixes(peer: peers.Peer) -> None:
        model = nn.Linear(2, 1)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        ask()
        peer.consensus()
        raise AssertionError("it should have ended")

    assert stopped(tmp_path / "a", lambda _: ask())["steps"] == 0
    assert stopped(tmp_path / "b", mixes)["steps"] == 0


def test_workers_that_inherit_the_handler_serve_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with peers.join({}, run_dir=str(tmp_path), stop_within=60.0) as peer:
        with monkeypatch.context() as forked:
            forked.setattr("os.getpid", lambda: -1)
            ask()
            ask()
        assert not peer._stop.asked
    assert summary(tmp_path)["exit"] == "finished"


def test_what_the_user_does_about_ctrl_c_counts(tmp_path: Path) -> None:
    def body(_: int, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        ask()

    behind = False
    with peers.join({}, run_dir=str(tmp_path), stop_within=60.0) as peer:
        try:
            loop(peer, body)
        except KeyboardInterrupt:
            behind = True
    assert behind
    assert summary(tmp_path)["exit"] == "interrupted"


def test_a_handler_of_the_users_is_left_alone(tmp_path: Path) -> None:
    asked = []
    before = signal.signal(signal.SIGINT, lambda *_: asked.append(1))
    try:
        with peers.join({}, run_dir=str(tmp_path), stop_within=60.0):
            ask()
    finally:
        signal.signal(signal.SIGINT, before)
    assert asked == [1]
    assert summary(tmp_path)["exit"] == "finished"


def test_without_a_launcher_ctrl_c_is_as_usual(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), peers.join({}, run_dir=str(tmp_path)) as peer:
        loop(peer, lambda *_: ask())
    assert summary(tmp_path)["exit"] == "interrupted"
