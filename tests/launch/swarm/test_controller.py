"""The launcher's loop over hosts that a test plays."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from rich.console import Console

import launch.swarm.controller
import launch.watch.display
from launch.options.options import LaunchOptions
from launch.swarm.controller import Controller
from launch.swarm.host import PeerProcess
from launch.swarm.launching import planned, verdict
from launch.terminal import output
from launch.watch.display import Display
from peers.table.lives import LIVES_APART

Emit = Callable[[int, dict[str, Any]], None]
TRAINING = {"status": {"step": 1, "state": "training"}}


class Played:
    """A host whose peers say what the test has them say when they are started, and end when they get a signal."""

    name = "localhost"

    def __init__(self, emit: Emit, says: Mapping[int, list[dict[str, Any]]]) -> None:
        self.emit = emit
        self.started: list[int] = []
        self.signals: list[tuple[int, int]] = []
        self.told: list[tuple[int, dict[str, Any]]] = []
        self._says = says
        self._running: set[int] = set()

    def start(self, peer: PeerProcess) -> None:
        self.started.append(peer.rank)
        self._running.add(peer.rank)
        for message in self._says.get(peer.rank, []):
            self._emit(peer.rank, message)

    def tell(self, rank: int, message: Mapping[str, Any]) -> None:
        self.told.append((rank, dict(message)))
        if "failed" in message:  # as a peer that waits for others does
            self._emit(rank, {"exit": 1})

    def signal(self, rank: int, number: int) -> None:
        self.signals.append((rank, number))
        if rank in self._running:
            self._emit(rank, {"exit": -number})

    def close(self) -> None:
        pass

    def _emit(self, rank: int, message: dict[str, Any]) -> None:
        if "exit" in message:
            self._running.discard(rank)
        self.emit(rank, message)


def played(
    directory: Path, says: Mapping[int, list[dict[str, Any]]], display: Display | None = None, **options: Any
) -> tuple[Controller, Played]:
    """Return the launcher of so many peers as have something to say, and their host."""
    script = directory / "train.py"
    script.touch()
    plan, faults = planned(LaunchOptions(str(script), peers=len(says), run_dir=str(directory / "run"), **options))
    hosts: list[Played] = []

    def made(emit: Emit) -> dict[int, Played]:
        hosts.append(Played(emit, says))
        return dict.fromkeys(says, hosts[0])

    controller = Controller(plan, made, faults, display or Display(output(), list(says), quiet=True))
    return controller, hosts[0]


def ended(controller: Controller) -> int | None:
    """Run to the end, and return the exit code; None if a request to stop tore it out of its loop."""
    try:
        return controller.run()
    except KeyboardInterrupt:
        return None


def ask_when(
    controller: Controller,
    condition: Callable[[], bool],
    first: Callable[[], None] = lambda: None,
    number: int = signal.SIGINT,
) -> None:
    """Ask the launcher to stop before the first turn at which a condition holds, and do something before that."""
    turn = controller._turn
    asked = False

    def act() -> None:
        nonlocal asked
        if condition() and not asked:
            asked = True
            first()
            signal.raise_signal(number)
        turn()

    controller._turn = act  # type: ignore[method-assign]


def test_who_has_just_said_that_it_listens_is_asked_and_not_ended(tmp_path: Path) -> None:
    """Its word lies in the queue when the request comes: rank 1 trains, and may want to save that; rank 2 does not."""
    controller, host = played(tmp_path, {0: [TRAINING], 1: [], 2: []})
    ask_when(controller, lambda: controller._peers[0].listens, lambda: host.emit(1, TRAINING))
    assert ended(controller) == 130
    assert host.signals == [(0, signal.SIGINT), (1, signal.SIGINT), (2, signal.SIGTERM)]


def test_how_peers_ended_shows_in_the_exit_code_and_in_the_last_line(tmp_path: Path) -> None:
    says = {
        0: [TRAINING, {"ended": "finished"}, {"exit": 0}],
        1: [TRAINING, {"ended": "failed: AgreementError: rank 1: no agreement"}, {"exit": 1}],
        2: [TRAINING, {"ended": "failed: DivergenceError: rank 2: training diverged"}, {"exit": 1}],
        3: [TRAINING, {"ended": "failed: AgreementError: rank 3: no agreement"}, {"exit": 1}],
    }
    written = io.StringIO()
    controller, _ = played(tmp_path, says, Display(Console(file=written, width=200), list(says), quiet=True))
    controller._introduced = True
    assert controller.run() == 1
    plan, _ = planned(LaunchOptions(str(tmp_path / "train.py"), peers=4, run_dir=str(tmp_path / "run")))
    assert verdict(plan, controller) == "1 of 4 peers finished; ended without agreement: ranks 1, 3; diverged: rank 2"
    said = "gossip: rank 2 failed with exit code 1: DivergenceError: rank 2: training diverged\n"
    assert said in written.getvalue()


def test_peers_that_all_diverged_are_no_success(tmp_path: Path) -> None:
    says = {rank: [TRAINING, {"ended": "failed: DivergenceError: x"}, {"exit": 1}] for rank in range(2)}
    controller, _ = played(tmp_path, says)
    controller._introduced = True
    assert controller.run() == 3


def test_sigterm_ends_a_launch_with_its_own_exit_code(tmp_path: Path) -> None:
    controller, host = played(tmp_path, {0: [TRAINING], 1: [TRAINING]})
    ask_when(controller, lambda: controller._peers[1].listens, number=signal.SIGTERM)
    assert ended(controller) == 143
    assert {number for _, number in host.signals} == {signal.SIGINT}


class Idle(Display):
    """A display that asks to stop when nothing happens any more, unless that was done before."""

    asked = idle = False

    def refresh(self, force: bool = False) -> None:
        if sys._getframe(1).f_code.co_name == "_turn" and not self.asked:
            self.idle = True
            self.ask()
        super().refresh(force)

    def ask(self) -> None:
        self.asked = True
        signal.raise_signal(signal.SIGINT)


def test_wherever_a_request_to_stop_comes_nothing_is_lost(tmp_path: Path) -> None:
    """Before each instruction in turn that the launcher does: rank 0 is asked, and the exit of rank 1 is heard."""
    says = {0: [TRAINING, {"line": "a line"}], 1: [TRAINING, {"ended": "finished"}, {"exit": 0}]}
    files = {launch.swarm.controller.__file__, launch.watch.display.__file__}
    before = sys.gettrace()
    moment, idle = 0, False
    while not idle:
        moment += 1
        display = Idle(Console(file=io.StringIO()), list(says))
        controller, host = played(tmp_path, says, display)
        left = moment

        def trace(frame: FrameType, event: str, _: Any, display: Idle = display, host: Played = host) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in files:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and host.started and not display.asked:
                left -= 1
                if left == 0:
                    display.ask()
            return trace

        sys.settrace(trace)
        try:
            code = ended(controller)
        finally:
            sys.settrace(before)
        idle = display.idle
        assert code == 130, moment
        assert (0, signal.SIGINT) in host.signals, moment
        assert {number for _, number in host.signals} == {signal.SIGINT}, moment
    assert moment > 500


class Unread(io.StringIO):
    """What nobody reads: a write hangs until somebody presses Ctrl-C."""

    requests = 0

    def write(self, text: str) -> int:
        self.requests += 1
        if self.requests <= 3:
            signal.raise_signal(signal.SIGINT)
        raise AssertionError(f"{text!r} hangs for ever")


def test_output_that_nobody_reads_does_not_hold_up_a_request(tmp_path: Path) -> None:
    """The first asks, the second kills, and the third does not wait for anything."""
    says = {0: [TRAINING, {"line": "one"}, {"line": "two"}]}
    controller, host = played(tmp_path, says, Display(Console(file=Unread()), list(says)))
    assert ended(controller) is None
    assert host.signals[:2] == [(0, signal.SIGINT), (0, signal.SIGKILL)]


def test_a_second_request_does_not_wait_for_what_holds_up_the_first(tmp_path: Path) -> None:
    """A peer that stands still does not read what it is told."""
    controller, host = played(tmp_path, {0: [TRAINING, {"card": [0, "127.0.0.1:4000", None]}]})

    def hangs(rank: int, message: Mapping[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError(f"{message} for rank {rank} hangs for ever")

    host.tell = hangs  # type: ignore[method-assign]
    assert ended(controller) is None
    assert host.signals == [(0, signal.SIGKILL)]


class Hasty(Display):
    """A display that asks again when it is shown the fourth line."""

    lines = 0

    def line(self, rank: int, text: str) -> None:
        del rank, text
        self.lines += 1
        if self.lines == 4:
            signal.raise_signal(signal.SIGINT)


def test_a_second_request_does_not_wait_until_all_has_been_heard(tmp_path: Path) -> None:
    says = {0: [TRAINING], 1: [{"line": "a line"}] * 100}
    display = Hasty(output(), list(says))
    controller, host = played(tmp_path, says, display)
    ask_when(controller, lambda: controller._peers[0].listens)
    end = host.signal
    heard = []

    def noting(rank: int, number: int) -> None:
        heard.append(display.lines)
        end(rank, number)

    host.signal = noting  # type: ignore[method-assign]
    assert ended(controller) == 130
    assert (1, signal.SIGKILL) in host.signals
    assert max(heard) == 4


def test_what_is_written_is_cut_short_once() -> None:
    display = Display(output(), [0])
    display.cut_short()
    display._writing = True
    with pytest.raises(KeyboardInterrupt):
        display.cut_short()
    display.cut_short()


def test_who_ends_as_asked_is_not_started_again(tmp_path: Path) -> None:
    """Its exit is heard while the launcher waits for the word of another."""
    cards = [{"card": [rank, f"127.0.0.1:{4000 + rank}", None]} for rank in range(2)]
    controller, host = played(tmp_path, {0: [cards[0], TRAINING], 1: [cards[1]]}, restart=1)
    ask_when(controller, lambda: controller._peers[0].listens)
    assert ended(controller) == 130
    assert host.signals == [(0, signal.SIGINT), (1, signal.SIGTERM)]
    assert host.started == [0, 1]


def shown(directory: Path, says: Mapping[int, list[dict[str, Any]]], **options: Any) -> tuple[int | None, str]:
    """Return the exit code and what the launcher said."""
    out = io.StringIO()
    controller, _ = played(directory, says, Display(Console(file=out, width=200), list(says)), **options)
    return ended(controller), out.getvalue()


def test_a_script_that_never_joins_is_not_a_success(tmp_path: Path) -> None:
    code, out = shown(tmp_path, {0: [{"exit": 0}], 1: []})
    assert code == 3
    assert "rank 0 ended without a call of peers.join()" in out
    assert out.count("before the swarm could start") == 1, "rank 1 ended because it was stopped"


@pytest.mark.parametrize("said", [TRAINING, {"card": [0, "127.0.0.1:5000", None]}], ids=["training", "joined"])
def test_a_script_that_is_cut_off_with_exit_code_0_is_not_a_success(tmp_path: Path, said: dict[str, Any]) -> None:
    finished = [TRAINING, {"ended": "finished"}, {"exit": 0}]
    out = io.StringIO()
    says = {0: [said, {"exit": 0}], 1: finished}
    controller, _ = played(tmp_path, says, Display(Console(file=out, width=200), list(says)))
    controller._introduced = True
    assert controller.run() == 1
    assert "rank 0 ended with exit code 0 without leaving the swarm, as by os._exit()" in out.getvalue()
    assert "rank 1" not in out.getvalue()


def test_what_a_script_overrides_is_told_once_and_handed_on(tmp_path: Path) -> None:
    finished = [TRAINING, {"ended": "finished"}, {"exit": 0}]
    says = {
        rank: [{"override": {"seed": 7}}, {"override": {"algorithm": "sgp" if rank < 2 else "adpsgd"}}, *finished]
        for rank in range(3)
    }
    out = io.StringIO()
    noted: list[dict[str, Any]] = []
    controller, _ = played(tmp_path, says, Display(Console(file=out, width=200), list(says)))
    controller._overridden = lambda settings: noted.append(dict(settings))
    controller._introduced = True
    assert controller.run() == 0
    assert [line.split("gossip: ")[1] for line in out.getvalue().splitlines() if "gossip: " in line] == [
        "the script overrides the command line: seed=7 instead of 0",
        "the script overrides the command line: algorithm='sgp' instead of 'osgp'",
        "rank 2 has another algorithm: 'adpsgd', and not 'sgp'",
    ]
    assert noted[-1] == {"seed": 7, "algorithm": "sgp"}


@pytest.mark.parametrize("trained", [True, False])
def test_a_peer_that_joined_a_swarm_is_started_again_if_it_has_trained(tmp_path: Path, trained: bool) -> None:
    """Nobody of the swarm is seen from here, so it goes on as far as is known."""
    says = {0: [{"card": [0, "127.0.0.1:5000", None]}, *[TRAINING] * trained, {"exit": 7}]}
    controller, host = played(tmp_path, says, restart=1)
    controller._plan = replace(
        controller._plan, swarm=3, common={**controller._plan.common, "incarnation": 4 * LIVES_APART}
    )
    lives = []
    host.start, start = lambda peer: (lives.append(peer.setup["incarnation"]), start(peer)), host.start
    controller._introduced = True
    assert controller.run() == 3
    assert lives == ([4 * LIVES_APART, 5 * LIVES_APART] if trained else [4 * LIVES_APART])


def test_who_never_joined_a_running_swarm_is_not_started_again(tmp_path: Path) -> None:
    controller, host = played(tmp_path, {0: [{"exit": 7}], 1: [{"exit": 0}]}, restart=1)
    controller._introduced = True  # as for a peer that joins
    assert ended(controller) == 3
    assert host.started == [0, 1]


def test_a_restart_that_never_came_is_told(tmp_path: Path) -> None:
    trained = {"status": {"step": 116, "state": "training"}}
    code, out = shown(
        tmp_path,
        {rank: [trained, {"ended": "finished"}, {"exit": 0}] for rank in range(2)},
        fault=("kill:1@300", "restart:1@400"),
    )
    assert code == 0
    assert "gossip: the restart of rank 1 at step 400 never came: training ended at step 116" in out


def cards(ranks: int) -> list[dict[str, Any]]:
    return [{"card": [rank, f"127.0.0.1:{4000 + rank}", None]} for rank in range(ranks)]


def failures(host: Played) -> list[tuple[int, object]]:
    """Return who was told of whose end."""
    return [(rank, message["failed"]) for rank, message in host.told if "failed" in message]


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (7, "failed with exit code 7"),
        (-signal.SIGSEGV, "was ended by SIGSEGV"),
        (0, "ended with exit code 0 without leaving the swarm, as by os._exit()"),
    ],
)
def test_who_waits_is_told_of_a_rank_that_ends_before_it_attaches(tmp_path: Path, code: int, what: str) -> None:
    """Rank 2 trains, and needs nobody."""
    zero, one, two = cards(3)
    controller, host = played(tmp_path, {0: [zero], 2: [two, TRAINING], 1: [one, {"exit": code}]})
    ask_when(controller, lambda: controller._peers[0].code is not None)
    assert ended(controller) == 130
    assert failures(host) == [(0, [1, what])]


@pytest.mark.parametrize("code", [0, 7])
def test_who_waits_for_cards_is_told_of_a_rank_that_never_shows_its_own(tmp_path: Path, code: int) -> None:
    """Rank 2 has not come so far, and is ended."""
    controller, host = played(tmp_path, {0: [cards(1)[0]], 2: [], 1: [{"exit": code}]})
    assert ended(controller) == 3
    ((waiting, (rank, _)),) = failures(host)  # type: ignore[misc]
    assert (waiting, rank) == (0, 1)
    assert host.signals == [(2, signal.SIGTERM)]


def test_who_waits_for_cards_is_told_who_is_late(tmp_path: Path) -> None:
    now = [0.0]
    controller, host = played(tmp_path, {0: [cards(1)[0]], 1: [], 2: []}, start_timeout=20.0)
    controller._clock = lambda: now[0]
    turn = controller._turn

    def later() -> None:
        turn()
        now[0] += 0.0 if failures(host) else 9.0

    controller._turn = later  # type: ignore[method-assign]
    assert ended(controller) == 3
    assert failures(host) == [(0, [1, "did not call peers.join within 20 s (nor did ranks 2)"])]
    assert host.signals == [(1, signal.SIGTERM), (2, signal.SIGTERM)]


@pytest.mark.parametrize("why", ["restart", "fault", "lost"])
def test_nobody_is_told_of_a_rank_that_returns_or_may_run_on(tmp_path: Path, why: str) -> None:
    options: dict[str, Any] = {"restart": {"restart": 1}, "fault": {"fault": ("kill:1@4", "restart:1@5")}}.get(why, {})
    zero, one = cards(2)
    controller, host = played(tmp_path, {0: [zero], 1: [one, {"exit": 255, "lost": why == "lost"}]}, **options)
    ask_when(controller, lambda: controller._peers[1].code is not None or controller._peers[1].lives > 1)
    ended(controller)
    assert failures(host) == []
    assert host.started == ([0, 1, 1] if why == "restart" else [0, 1])
