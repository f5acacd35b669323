"""The launcher's loop over hosts that a test plays."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launch.commands.options import LaunchOptions
from launch.swarm.controller import Controller
from launch.swarm.host import PeerProcess
from launch.swarm.launching import planned
from launch.terminal import output
from launch.watch.display import Display


class Played:
    """A host whose peers say what the test has them say, once they are started and while they end."""

    name = "localhost"

    def __init__(self, emit: Callable[[int, dict[str, Any]], None]) -> None:
        self.emit = emit
        self.signals: list[tuple[int, int]] = []

    def start(self, peer: PeerProcess) -> None:
        del peer

    def tell(self, rank: int, message: Mapping[str, Any]) -> None:
        del rank, message

    def signal(self, rank: int, number: int) -> None:
        self.signals.append((rank, number))
        self.emit(rank, {"exit": -number})

    def close(self) -> None:
        pass


def test_who_has_just_said_that_it_listens_is_asked_and_not_ended(tmp_path: Path) -> None:
    """Its word lies in the queue when the request comes: rank 1 trains, and may want to save that; rank 2 does not."""
    script = tmp_path / "train.py"
    script.touch()
    plan, faults = planned(LaunchOptions(str(script), peers=3, run_dir=str(tmp_path / "run")))
    hosts: list[Played] = []

    def made(emit: Callable[[int, dict[str, Any]], None]) -> dict[int, Played]:
        hosts.append(Played(emit))
        return dict.fromkeys(range(3), hosts[0])

    controller = Controller(plan, made, faults, Display(output(), range(3), quiet=True))
    training = {"status": {"step": 1, "state": "training"}}
    turns = iter([lambda: hosts[0].emit(0, training), None, lambda: hosts[0].emit(1, training), "stop"])
    turn = controller._turn

    def act() -> None:
        what = next(turns, None)
        if what == "stop":
            raise KeyboardInterrupt
        if callable(what):
            what()
            if hosts[0].signals or controller._peers[0].listens:
                return  # said, and not read yet
        turn()

    controller._turn = act  # type: ignore[method-assign]
    assert controller.run() == 130
    assert hosts[0].signals == [(0, signal.SIGINT), (1, signal.SIGINT), (2, signal.SIGTERM)]
