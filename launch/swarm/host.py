"""The peers of one machine as processes: started, listened to, signalled.

A peer writes its output to a file and not into a pipe, and runs in its own session. So it continues when the launcher
is gone: the launcher is not a coordinator. Its messages go over a pair of pipes (see `peers.session.cards.Channel`),
and no process has to read the other end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

__all__ = ["Emit", "Host", "LocalHost", "PeerProcess", "threads"]

#: Is called, in any thread, with what happens to a rank: a card, a status, a line of its output, its exit.
Emit = Callable[[int, dict[str, Any]], None]

#: Seconds between two looks at the output of peers.
_LOOK = 0.1
#: Seconds after its end in which the last message of a peer is read.
_LAST_WORDS = 1.0
#: A line of output beyond this many characters is shown in parts.
_LINE_LIMIT = 4000


@dataclass(frozen=True)
class PeerProcess:
    """What is to be started."""

    rank: int
    command: Sequence[str]
    #: What the peer is told over its channel: the fields of `peers.setup.Setup`, and keys as a pair of texts.
    setup: Mapping[str, Any]
    #: Where its output goes. A restarted process appends to the same file.
    log: str
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""

    def encode(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return asdict(self)

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> PeerProcess:
        """Read what `encode` returned."""
        return cls(**fields)


def threads(peers: int) -> dict[str, str]:
    """Share the cores among the peers of a machine: with as many threads each as there are cores all would be slow."""
    if "OMP_NUM_THREADS" in os.environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // peers))}


class Host(Protocol):
    """A machine that peers run on."""

    name: str

    def start(self, peer: PeerProcess) -> None:
        """Start a peer."""

    def tell(self, rank: int, message: Mapping[str, Any]) -> None:
        """Send a line over a peer's channel."""

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a peer, if it runs."""

    def close(self) -> None:
        """Stop listening. Running peers continue."""


class LocalHost:
    """This machine."""

    def __init__(self, emit: Emit, name: str = "localhost") -> None:
        self.name = name
        self._emit = emit
        self._running: dict[int, _Running] = {}

    def start(self, peer: PeerProcess) -> None:
        """Start a peer; what it says and how it ends is emitted."""
        self._running[peer.rank] = _Running(peer, self._emit)

    def tell(self, rank: int, message: Mapping[str, Any]) -> None:
        """Send a line over a peer's channel; it may be gone."""
        self._running[rank].tell(message)

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a peer's process and to what it has started, such as the workers of a data loader."""
        if rank in self._running:
            self._running[rank].signal(number)

    def close(self) -> None:
        """Stop listening."""
        for running in self._running.values():
            running.close()


class _Running:
    """One process, and the threads that listen to it."""

    def __init__(self, peer: PeerProcess, emit: Emit) -> None:
        self._rank = peer.rank
        self._emit = emit
        log = Path(peer.log)
        log.parent.mkdir(parents=True, exist_ok=True)
        child_in, self._to_child = os.pipe()
        self._from_child, child_out = os.pipe()
        environment = {**os.environ, **peer.environment, "GOSSIP_CHANNEL": f"{child_in},{child_out}"}
        with log.open("ab") as file:
            start = file.tell()
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the user's own program
                    list(peer.command),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    cwd=peer.directory or None,
                    env=environment,
                    pass_fds=(child_in, child_out),
                    start_new_session=True,
                )
            finally:
                os.close(child_in)
                os.close(child_out)
        self.tell({"setup": dict(peer.setup)})
        self._ended = threading.Event()
        self._closed = threading.Event()
        output = log.open(encoding="utf-8", errors="replace")
        output.seek(start)
        self._follower = threading.Thread(target=self._follow, args=(output,), daemon=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        for thread in (self._listener, self._follower):
            thread.start()
        threading.Thread(target=self._await, daemon=True).start()

    def tell(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            os.write(self._to_child, json.dumps(message).encode() + b"\n")

    def signal(self, number: int) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            os.close(self._to_child)

    def _listen(self) -> None:
        with os.fdopen(self._from_child, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    self._emit(self._rank, json.loads(line))

    def _follow(self, output: IO[str]) -> None:
        """Emit the lines of the log as they come."""
        rest = ""
        with output:
            while True:
                over = self._ended.is_set() or self._closed.is_set()
                rest += output.read()
                *lines, rest = rest.split("\n")
                if over and rest:
                    lines, rest = [*lines, rest], ""
                for line in lines:
                    for start in range(0, len(line) or 1, _LINE_LIMIT):
                        self._emit(self._rank, {"line": line[start : start + _LINE_LIMIT]})
                if over:
                    return
                self._ended.wait(_LOOK)

    def _await(self) -> None:
        code = self._process.wait()
        # What it had started, such as workers, has no business without it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._ended.set()
        self._follower.join()
        # Its last words come before its exit; something that it left behind may keep its channel open.
        self._listener.join(_LAST_WORDS)
        self._emit(self._rank, {"exit": code})
