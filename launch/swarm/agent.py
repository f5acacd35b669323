"""The agent on another machine, started by `launch.swarm.remote`: it starts and watches the peers there.

It reads commands and writes events, one JSON object per line. Keys and settings arrive this way, so they are on no
command line and in no environment. Like the launcher, the agent is not a coordinator: when its input ends it exits
quietly, and the peers continue.

With ``--stay`` it stays until they have ended: in a job of Slurm they would not outlive it. A SIGTERM, by which Slurm
asks all of a job to stop, is then passed on to the peers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from gossip.version import __version__
from launch.swarm.gpus import gpu_for
from launch.swarm.host import LocalHost, PeerProcess, threads
from launch.swarm.interrupts import interruptible
from launch.swarm.run_place import used

__all__ = ["Agent", "main"]

#: The exit code of a peer that could not be started, as a shell has it.
_NOT_STARTED = 127


class Agent:
    """The peers of this machine, for a launcher on another."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._host = LocalHost(self._heard)
        self._running: set[int] = set()
        self._changed = threading.Condition()
        self._python = sys.executable
        self._there = self._here = Path.cwd()
        self._peers = 1

    def obey(self, command: Mapping[str, Any]) -> None:
        """Follow a command of the launcher; it came over ssh or from the own job, so it is trusted."""
        if "check" in command:
            self._write({"hello": self._check(command["check"])})
        elif "start" in command:
            self._start(PeerProcess.decode(command["start"]))
        elif "tell" in command:
            rank, message = command["tell"]
            with contextlib.suppress(KeyError):  # it could not be started
                self._host.tell(rank, message)
        elif "signal" in command:
            self._host.signal(*command["signal"])

    def ask_to_stop(self, _: int) -> None:
        """Ask all peers to stop."""
        for rank in list(self._running):
            self._host.signal(rank, signal.SIGTERM)

    def await_peers(self) -> None:
        """Wait until no peer runs."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running)

    def close(self) -> None:
        """Stop listening to the peers; they continue."""
        self._host.close()

    def _heard(self, rank: int, message: Mapping[str, Any]) -> None:
        self._write({"rank": rank, "message": message})
        if "exit" in message:
            with self._changed:
                self._running.discard(rank)
                self._changed.notify_all()

    def _write(self, message: Mapping[str, Any]) -> None:
        with self._lock, contextlib.suppress(OSError):  # the launcher may be gone
            self._out.write(json.dumps(message) + "\n")
            self._out.flush()

    def _check(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what this machine has, and what prevents a launch here."""
        self._python, self._there, self._peers = asked["python"], Path(asked["directory"]), asked["peers"]
        problems, warnings = [], []
        self._here = self._there if self._there.is_dir() else Path.home()
        if self._here != self._there:
            warnings.append(f"has no directory {self._there}: its peers run in {self._here}")
        problems += self._missing(asked["command"])
        run_dir = self._mapped(asked["run_dir"])
        parent = next(path for path in (run_dir, *run_dir.parents) if path.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            problems.append(f"cannot write to the run directory {run_dir}: choose another with --run-dir")
        if used(run_dir) and not asked.get("resume"):
            problems.append(f"already has a run in {run_dir}: continue it with --resume, or choose another --run-dir")
        if importlib.util.find_spec("torch") is None:
            problems.append(f"has no torch: install it for {sys.executable}")
        protocol: int | None = None
        try:
            from gossip.wire.frames import VERSION as protocol  # noqa: N811
        except ImportError as error:
            problems.append(f"cannot import gossip: {error}; reinstall it for {sys.executable}")
        return {"version": __version__, "protocol": protocol, "problems": problems, "warnings": warnings}

    def _missing(self, command: Sequence[str]) -> list[str]:
        """Return a problem if the user's program is missing on this machine."""
        if command[0] != self._python:
            there = str(self._here / command[0]) if "/" in command[0] else command[0]
            return (
                [] if shutil.which(there) else [f"has no program {command[0]}: install it there, or give its full path"]
            )
        script = command[1]
        if script.startswith("-") or self._mapped(script).is_file():
            return []
        return [f"has no script {self._mapped(script)}: copy it there, or use a shared directory"]

    def _mapped(self, path: str) -> Path:
        """Return where a path of the launcher's machine is on this one: the same, below the working directory."""
        with contextlib.suppress(ValueError):
            return self._here / Path(path).relative_to(self._there)
        return self._here / path

    def _start(self, peer: PeerProcess) -> None:
        command = list(peer.command)
        if command[0] == self._python:
            command[0] = sys.executable
            if not command[1].startswith("-"):
                command[1] = str(self._mapped(command[1]))
        peer = replace(
            peer,
            command=command,
            setup={**peer.setup, "run_dir": str(self._mapped(peer.setup["run_dir"]))},
            log=str(self._mapped(peer.log)),
            environment={
                **threads(self._peers),
                **gpu_for(peer.setup.get("local_rank", 0), peer.setup.get("device", "auto")),
                **peer.environment,
            },
            directory=str(self._here),
        )
        try:
            self._running.add(peer.rank)
            self._host.start(peer)
        except OSError as error:
            self._running.discard(peer.rank)
            for message in ({"line": f"gossip: cannot start: {error}"}, {"exit": _NOT_STARTED}):
                self._write({"rank": peer.rank, "message": message})


def main() -> int:
    """Obey until the input ends."""
    # Standard output belongs to the launcher; what anything else prints is for people.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    agent = Agent(out)
    stays = "--stay" in sys.argv[1:]
    asked = interruptible(agent.ask_to_stop) if stays else interruptible()
    with contextlib.suppress(KeyboardInterrupt), asked:
        for line in sys.stdin.buffer:
            agent.obey(json.loads(line))
        if stays:
            agent.await_peers()
    agent.close()
    return 0


if __name__ == "__main__":
    main()
    os._exit(0)  # threads that listen to peers are of no use now, and must not complain
