"""`gossip launch` as a process of its own, with peers that wait at gates; see ssh_training.py."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ssh_server import inside

SCRIPT = Path(__file__).with_name("ssh_training.py")
#: Seconds for anything that has to happen; generous, for loaded machines.
SOON = 60.0


class Launch:
    """One run of the launcher. ``directory`` has the script, and what its peers write is in ``directory/notes``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.notes = directory / "notes"
        self.notes.mkdir(parents=True)
        self.work = directory / "place" / "work"
        self.work.mkdir(parents=True)
        shutil.copy(SCRIPT, self.work / "train.py")
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)

    def start(
        self, hosts: str, *options: str, ssh: str, steps: int = 5, namespace: str = "", returns: int | None = None
    ) -> Launch:
        """Start the launcher in the directory ``work``, in a session of its own like that of a terminal.

        All train until the rank ``returns`` has come back, if one is to.
        """
        (self.work / "hosts").write_text(hosts)
        command = [sys.executable, "-m", "launch.cli", "launch", "--hostfile", "hosts", "--run-dir", "runs/one"]
        arguments = [str(self.notes), str(steps), *([] if returns is None else [str(returns)])]
        self._process = subprocess.Popen(
            [*inside(namespace), *command, *options, "train.py", *arguments],
            cwd=self.work,
            env={**os.environ, "GOSSIP_SSH": ssh, "COLUMNS": "300"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def gate(self, ranks: int) -> None:
        """Let so many peers wait at their gates."""
        for rank in range(ranks):
            os.mkfifo(self.notes / f"gate-{rank}")

    def open_gates(self) -> None:
        """Let the peers go on; waits for those that have not come yet."""
        for path in sorted(self.notes.glob("gate-*")):
            # In a thread, since nobody might ever come to read.
            opening = threading.Thread(target=path.write_bytes, args=(b"go",), daemon=True)
            opening.start()
            opening.join(SOON)
            assert not opening.is_alive(), f"nobody is at {path.name}:\n{self.output}"

    def said(self, *texts: str) -> None:
        """Wait until the launcher has printed all of these."""
        with self._changed:
            there = self._changed.wait_for(lambda: all(text in "".join(self._lines) for text in texts), SOON)
        assert there, f"{texts} did not come:\n{self.output}"

    def joined(self, ranks: int) -> dict[int, dict[str, Any]]:
        """Wait until so many peers say over the launcher that they have joined, and return what they noted."""
        self.said(*(f"joined {rank}" for rank in range(ranks)))
        return {rank: self.lives(rank)[-1] for rank in range(ranks)}

    def lives(self, rank: int) -> list[dict[str, Any]]:
        """Return what a rank noted, in each of its lives."""
        return [json.loads(line) for line in (self.notes / f"joined-{rank}").read_text().splitlines()]

    def result(self, rank: int) -> list[float]:
        values: list[float] = json.loads((self.notes / f"result-{rank}").read_text())
        return values

    def ended(self, seconds: float = SOON) -> int:
        """Wait for the launcher's end and for all that it printed, and return its exit code."""
        assert self._process is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the launcher goes on:\n{self.output}") from None
        self._reader.join(SOON)
        assert not self._reader.is_alive(), f"somebody else has the launcher's output open:\n{self.output}"
        return code

    def clean(self) -> None:
        """End whatever is left."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for path in self.notes.glob("joined-*"):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(json.loads(line)["pid"], signal.SIGKILL)


def gone(pid: int, seconds: float = SOON) -> bool:
    """Wait for the end of a process that is not ours; return whether it came."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def processes(marker: str) -> dict[int, str]:
    """Return the command line and the environment of all processes that show a text in one of them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        text = ""
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                text += (path / name).read_bytes().decode(errors="replace")
        if marker in text:
            found[int(path.name)] = text
    return found


def since(began: float) -> float:
    return time.monotonic() - began
