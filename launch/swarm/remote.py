"""Another machine: a connection by ssh or `srun`, and at its other end `launch.swarm.agent`.

The connection is for starting and watching. If it is lost, the peers continue; the launcher no longer hears of them.
"""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from gossip.version import __version__
from gossip.wire.frames import VERSION
from launch.swarm import slurm_allocation, ssh
from launch.swarm.host import Emit, PeerProcess
from launch.swarm.hostfile import HostLine
from launch.user_errors import CommandError

__all__ = ["LOST", "RemoteHost", "connected"]

#: The exit code of a peer on a lost connection: that of ssh itself.
LOST = 255
#: Seconds for the other side to follow a SIGKILL, and for ssh to end after the last word.
_KILL_GRACE, _CLOSE_GRACE = 5.0, 5.0


class RemoteHost:
    """A machine that is reached by ssh, or by `srun` in an allocation of Slurm."""

    def __init__(self, emit: Emit, line: HostLine) -> None:
        """Begin to connect; `answer` waits for it."""
        self.name = line.host
        self.line = line
        self._emit = emit
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._lost = ""
        self._killed: set[int] = set()
        self._hello: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._stderr: deque[str] = deque(maxlen=20)
        command = slurm_allocation.agent_command(line) if line.job else ssh.agent_command(line)
        try:
            # In a session of its own: Ctrl-C is for the launcher, which tells the peers; ssh must stay for that.
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=slurm_allocation.agent_environment() if line.job else None,
                start_new_session=True,
            )
        except OSError as error:
            remedy = "it must be on the PATH" if line.job else "name an ssh program in GOSSIP_SSH"
            raise CommandError(f"cannot run {command[0]}: {error.strerror}; {remedy}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._writer = threading.Thread(target=self._write, args=(self._process.stdin,), daemon=True)
        self._errors = threading.Thread(target=self._collect, args=(self._process.stderr,), daemon=True)
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        for thread in (self._writer, self._errors, self._reader):
            thread.start()

    def ask(self, question: Mapping[str, Any]) -> None:
        """Send the question whether this host can take part."""
        self._outbox.put({"check": dict(question)})

    def answer(self, until: float, seconds: float) -> tuple[list[str], list[str]]:
        """Wait for the answer, but not beyond a time; return what is in the way, and warnings."""
        with contextlib.suppress(queue.Empty):
            hello = self._hello.get(timeout=max(until - time.monotonic(), 0.01))
            if hello is not None:
                return [*_differences(hello), *hello["problems"]], hello["warnings"]
        explained = slurm_allocation.explained if self.line.job else ssh.explained
        return [explained(self.line, self._process.poll(), list(self._stderr), seconds)], []

    def start(self, peer: PeerProcess) -> None:
        """Start a peer; what it says and how it ends is emitted."""
        with self._lock:
            if not self._lost:
                self._running.add(peer.rank)
                self._outbox.put({"start": peer.encode()})
                return
        self._emit(peer.rank, {"line": f"gossip: {self._lost}"})
        self._emit(peer.rank, {"exit": LOST, "lost": True})

    def tell(self, rank: int, message: Mapping[str, Any]) -> None:
        """Send a line over a peer's channel."""
        self._outbox.put({"tell": [rank, dict(message)]})

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a peer, if it runs; a host that does not follow the last one in time is given up."""
        with self._lock:
            if rank not in self._running:
                return
            if number == signal.SIGKILL:
                if rank in self._killed:
                    return
                self._killed.add(rank)
                timer = threading.Timer(_KILL_GRACE, self._overdue, (rank,))
                timer.daemon = True
                timer.start()
            self._outbox.put({"signal": [rank, int(number)]})

    def close(self) -> None:
        """End the connection. Running peers continue."""
        self._outbox.put(None)
        if not self._lost:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_CLOSE_GRACE)
        self.abandon()

    def abandon(self) -> None:
        """End the connection at once."""
        self._process.kill()
        self._process.wait()
        self._outbox.put(None)
        for thread in (self._writer, self._reader, self._errors):
            thread.join(_CLOSE_GRACE)

    def _write(self, stdin: IO[bytes]) -> None:
        with contextlib.suppress(OSError), stdin:
            while (message := self._outbox.get()) is not None:
                stdin.write(json.dumps(message).encode() + b"\n")
                stdin.flush()

    def _collect(self, stderr: IO[bytes]) -> None:
        with stderr:
            for line in stderr:
                if text := line.decode(errors="replace").strip():
                    self._stderr.append(text)

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue  # what the login shell of that machine has to say
                if isinstance(message, dict) and "hello" in message:
                    self._hello.put(message["hello"])
                elif isinstance(message, dict) and "rank" in message:
                    self._heard(message["rank"], message["message"])
        self._process.wait()
        self._errors.join(_CLOSE_GRACE)
        self._hello.put(None)
        self._give_up(" / ".join(list(self._stderr)[-2:]) or f"it ended with exit code {self._process.returncode}")

    def _heard(self, rank: int, message: dict[str, Any]) -> None:
        with self._lock:
            if rank not in self._running:
                return  # its exit was emitted already
            if "exit" in message:
                self._running.discard(rank)
                self._killed.discard(rank)
        self._emit(rank, message)

    def _overdue(self, rank: int) -> None:
        """Give the host up if a peer has not ended of the SIGKILL that it was sent."""
        with self._lock:
            overdue = rank in self._killed
        if overdue:
            self._give_up("it no longer obeys")

    def _give_up(self, reason: str) -> None:
        """Count the peers of this host as ended: nothing is heard of them any more."""
        with self._lock:
            self._lost = self._lost or f"the connection to {self.name} is lost; its peers continue, unwatched: {reason}"
            ranks = sorted(self._running)
            self._running.clear()
            self._killed.clear()
        for rank in ranks:
            self._emit(rank, {"line": f"gossip: {self._lost}"})
            self._emit(rank, {"exit": LOST, "lost": True})


def connected(
    emit: Emit,
    lines: Sequence[HostLine],
    command: Sequence[str],
    run_dir: Path,
    *,
    seconds: float,
    resume: bool = False,
) -> dict[HostLine, RemoteHost]:
    """Connect to all hosts at once, and ask whether they can take part: before anything is started anywhere.

    Args:
        emit: where the hosts emit what happens.
        lines: the hosts.
        command: the user's program.
        run_dir: where logs and metrics go, as a path of this machine.
        seconds: how long to wait for all of them.
        resume: whether to continue an existing run; otherwise a host that has one cannot take part.

    Raises:
        CommandError: some cannot take part; each is named on standard error, with what to do.
    """
    hosts: dict[HostLine, RemoteHost] = {}
    question = {
        "python": sys.executable,
        "directory": str(Path.cwd()),
        "command": list(command),
        "run_dir": str(run_dir),
        "resume": resume,
    }
    try:
        for line in lines:
            hosts[line] = RemoteHost(emit, line)
            hosts[line].ask({**question, "peers": len(line.local_ranks)})
        _check(hosts.values(), seconds)
    except BaseException:
        for host in hosts.values():
            host.abandon()
        raise
    return hosts


def _check(hosts: Collection[RemoteHost], seconds: float) -> None:
    until = time.monotonic() + seconds
    failed = []
    for host in hosts:
        problems, warnings = host.answer(until, seconds)
        for text in [*(f"warning: {text}" for text in warnings), *problems]:
            print(f"gossip: {host.name}: {text}", file=sys.stderr)
        if problems:
            failed.append(host.name)
    if failed:
        raise CommandError(f"{', '.join(failed)} cannot take part, so nothing was started; the reasons are above")


def _differences(hello: Mapping[str, Any]) -> list[str]:
    if hello["version"] != __version__:
        return [
            f"has gossip {hello['version']}, and this machine has {__version__}: install the same version on all hosts"
        ]
    if hello["protocol"] not in (VERSION, None):
        versions = f"{hello['protocol']} of the protocol, and this machine {VERSION}"
        return [f"speaks version {versions}: install the same version on all hosts"]
    return []
