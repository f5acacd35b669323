"""A peer that is asked to stop ends at a step boundary, with a checkpoint, and without a traceback."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peer_script import train
from swarms import LONGEST, LONGEST_PROCESS, Meeting, more_than, nothing_left, together
from torch import nn

import peers
from gossip import presets
from peers.data.workers import ServingWorker
from peers.session import stopping


def ask(number: int = signal.SIGINT) -> None:
    signal.raise_signal(number)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """See that neither the handler nor its thread outlives the peer."""
    left = nothing_left()
    yield
    assert more_than(left) == (set(), {})
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


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


def stopped(
    run: Path,
    act: Callable[[peers.Peer], None],
    within: float = 60.0,
    every: int = 100,
    number: int = signal.SIGINT,
) -> dict[str, Any]:
    """Let a peer act until it stops as asked; return its summary."""
    with (
        pytest.raises(SystemExit, match=str(128 + number)),
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


def test_a_second_request_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_SAME", 0.0)

    def body(_: int, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        ask()
        ask()
        raise AssertionError("it should have ended")

    assert stopped(tmp_path, lambda peer: loop(peer, body))["steps"] == 1
    assert checkpoints(tmp_path) == []


def test_requests_of_the_same_moment_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler signals all processes, and torchrun or a launcher passes its own signal on."""
    monkeypatch.setattr(stopping, "_SAME", 600.0)

    def body(_: int, optimizer: torch.optim.Optimizer) -> None:
        ask(signal.SIGTERM)
        ask(signal.SIGINT)
        ask(signal.SIGTERM)
        optimizer.step()

    assert stopped(tmp_path, lambda peer: loop(peer, body), number=signal.SIGTERM)["steps"] == 1
    assert checkpoints(tmp_path) == ["step-00000001"]


def test_a_request_in_the_middle_of_another_is_not_waited_for() -> None:
    """As from Slurm, an agent and a launcher: the handler of the second runs inside that of the first."""

    class Bell(threading.Event):
        inside = False

        def set(self) -> None:
            assert not self.inside, "it would wait for its own lock"
            self.inside = True
            if not self.is_set():
                ask(signal.SIGTERM)
            super().set()
            self.inside = False

    request = stopping.StopRequest(60.0)
    request._rang = Bell()
    request.listen()
    request.patient = True
    ask(signal.SIGTERM)
    assert (request.asked, request.raised) == (True, False)
    request.close()


def test_where_no_boundary_is_ahead_it_ends_at_once(tmp_path: Path) -> None:
    def mixes(peer: peers.Peer) -> None:
        model = nn.Linear(2, 1)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        ask()
        peer.consensus()
        raise AssertionError("it should have ended")

    assert stopped(tmp_path / "a", lambda _: ask())["steps"] == 0
    assert stopped(tmp_path / "b", mixes)["steps"] == 0


def test_a_peer_in_another_thread_is_asked_by_a_call(tmp_path: Path) -> None:
    ends: list[Any] = []

    def in_a_thread() -> None:
        def body(number: int, optimizer: torch.optim.Optimizer) -> None:
            if number == 2:
                asked = threading.Thread(target=lambda: ends.append(peer.ask_to_stop()))
                asked.start()
                asked.join()
            optimizer.step()

        try:
            with peers.join({}, run_dir=str(tmp_path), checkpoint_every=100) as peer:
                loop(peer, body)
        except SystemExit as end:
            ends.append(end.code)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join(LONGEST)
    assert ends == [True, 143]
    assert checkpoints(tmp_path) == ["step-00000003"]


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


@pytest.mark.parametrize("within", [0.0, 60.0], ids=["by a scheduler", "below a launcher"])
def test_sigterm_is_a_request_to_stop(tmp_path: Path, within: float, caplog: pytest.LogCaptureFixture) -> None:
    def body(number: int, optimizer: torch.optim.Optimizer) -> None:
        if number == 3:
            ask(signal.SIGTERM)
        optimizer.step()

    assert stopped(tmp_path, lambda peer: loop(peer, body), within, number=signal.SIGTERM)["steps"] == 4
    assert checkpoints(tmp_path) == ["step-00000004"]
    assert caplog.messages == ["rank 0: stopped after step 4 as asked, and saved that as a checkpoint"]


def test_a_sigterm_handler_of_the_users_is_left_alone_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    try:
        with peers.join({}, run_dir=str(tmp_path)):
            ask(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked == [1]
    assert summary(tmp_path)["exit"] == "finished"
    assert "the script handles SIGTERM itself" in caplog.text


def test_a_handler_that_the_user_installs_later_stays(tmp_path: Path) -> None:
    def own(*_: object) -> None:
        pass

    try:
        with peers.join({}, run_dir=str(tmp_path)):
            signal.signal(signal.SIGTERM, own)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_peer_that_another_thread_closes_leaves_the_signals_as_they_were(tmp_path: Path) -> None:
    peer = peers.join({}, run_dir=str(tmp_path), stop_within=60.0)
    peer.__enter__()
    closes = threading.Thread(target=peer.close)
    closes.start()
    closes.join()
    with pytest.raises(KeyboardInterrupt):
        ask()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the first SIGTERM would have done that, and ended this process
    assert summary(tmp_path)["exit"] == "finished"


def test_outside_of_the_main_thread_a_peer_works_and_says_what_it_cannot_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def act() -> None:
        with peers.join({}, run_dir=str(tmp_path)) as peer:
            model = nn.Linear(2, 1)
            peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    assert summary(tmp_path)["exit"] == "finished"
    assert "this peer does not run in the main thread, so it cannot handle signals" in caplog.text


def in_main_thread(meeting: Meeting, act: Callable[[peers.Peer], None], other: Callable[[], Any]) -> Any:
    """Let rank 0 act here until it is stopped, and something else in a thread; return what came of the latter."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(together([other])[0]))
    thread.start()
    try:
        with pytest.raises(SystemExit, match="143"), meeting.peer(0, presets.preset("loopback")) as peer:
            act(peer)
    finally:
        thread.join()
    return results[0]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_while_others_are_waited_for_at_the_start(tmp_path: Path) -> None:
    meeting = Meeting(2, run_dir=str(tmp_path))
    holder: list[peers.Peer] = []

    def act(peer: peers.Peer) -> None:
        holder.append(peer)
        model = nn.Linear(2, 1)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        raise AssertionError("the other one never came")

    def asks() -> None:
        until(lambda: bool(holder and holder[0]._attachment and holder[0]._attachment.session._rendezvous.here()))
        terminate()

    assert in_main_thread(meeting, act, asks) is None
    assert summary(tmp_path)["exit"] == "interrupted"


def test_sigterm_while_others_are_waited_for_in_consensus(tmp_path: Path) -> None:
    """The one that is asked saves where it is, and hands its mass over to the one that stays."""
    meeting = Meeting(2, run_dir=str(tmp_path), checkpoint_every=100)

    def trains(peer: peers.Peer) -> None:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        for _ in range(3):
            optimizer.step()
        peer.consensus()
        raise AssertionError("the other one never came")

    def stays(peer: peers.Peer) -> float:
        model = nn.Linear(2, 1)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        roll = peer._attached().session._rendezvous.roll
        until(lambda: 0 in roll.ranks("mixing"))
        terminate()

        def has_all() -> bool:
            peer._attached().session.merge()
            return peer.weight > 1.999

        until(has_all)
        return peer.weight

    assert in_main_thread(meeting, trains, meeting.task(1, stays, presets.preset("loopback"))) == pytest.approx(2.0)
    assert (summary(tmp_path)["exit"], summary(tmp_path)["steps"]) == ("interrupted", 3)
    assert checkpoints(tmp_path) == ["step-00000003"]


def test_sigterm_while_the_others_still_need_a_peer_that_has_finished(tmp_path: Path) -> None:
    """A parameter server stays until the last worker has left."""
    meeting = Meeting(2, run_dir=str(tmp_path), algorithm="parameter-server")
    holder: list[peers.Peer] = []

    def act(peer: peers.Peer) -> None:
        holder.append(peer)
        model = nn.Linear(2, 1)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def works(peer: peers.Peer) -> None:
        model = nn.Linear(2, 1)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        until(lambda: bool(holder and holder[0]._closing.over and not holder[0]._stop.patient))
        terminate()
        until(lambda: peer.view == (1,))

    assert in_main_thread(meeting, act, meeting.task(1, works, presets.preset("loopback"))) is None
    assert summary(tmp_path)["exit"] == "interrupted"


def test_sigterm_in_an_exchange_that_hangs_ends_the_peer_in_half_of_its_time(tmp_path: Path) -> None:
    """The neighbour of a synchronous step does not answer, and this preset would wait for a minute."""
    meeting = Meeting(2, run_dir=str(tmp_path), algorithm="sgp", stop_within=0.5)
    over = threading.Event()
    stepping = threading.Event()

    def act(peer: peers.Peer) -> None:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.attach(model, optimizer)
        stepping.set()
        for _ in range(100):
            optimizer.step()
        raise AssertionError("nobody answered")

    def silent(peer: peers.Peer) -> None:
        model = nn.Linear(2, 1)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert stepping.wait(LONGEST)
        terminate()
        assert over.wait(LONGEST)

    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(together([meeting.task(1, silent)])[0]))
    thread.start()
    try:
        with pytest.raises(SystemExit, match="143"), meeting.peer(0) as peer:
            act(peer)
    finally:
        over.set()
        thread.join()
    assert results == [None]
    assert summary(tmp_path)["exit"] == "interrupted"


def test_sigterm_for_all_processes_of_a_peer_with_workers(tmp_path: Path) -> None:
    """As Slurm sends it: workers serve until the peer has ended, and other children end as usual."""
    script = Path(__file__).parents[2] / "support" / "worker_script.py"
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(2)]
        if said[1]:
            os.killpg(process.pid, signal.SIGTERM)
        out, err = process.communicate("\n", timeout=LONGEST_PROCESS)
    finally:
        process.kill()
        process.communicate()
    assert said == ["terminated: -15\n", "waits\n"], err
    assert process.returncode == 143, out + err
    assert "Traceback" not in err
    assert "stopped after step 2 as asked, and saved that as a checkpoint" in err
    assert checkpoints(tmp_path) == ["step-00000002"]


def test_what_workers_do_can_be_sent_to_those_that_are_spawned() -> None:
    begin = pickle.loads(pickle.dumps(ServingWorker(print)))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        begin(0)
        ask()
        ask(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the second one ends it"
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_without_a_launcher_ctrl_c_is_as_usual(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), peers.join({}, run_dir=str(tmp_path)) as peer:
        loop(peer, lambda *_: ask())
    assert summary(tmp_path)["exit"] == "interrupted"
