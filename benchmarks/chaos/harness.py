"""Starts a swarm of real processes through ``gossip launch``, does things to it, and sees to it that all of it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.chaos.metronome import Metronome
from benchmarks.chaos.nursery import ROOT, Nursery

__all__ = ["PEERS", "STEP", "ChaosError", "Scale", "Session", "Swarm", "is_running", "lines", "until"]

PEERS = 4
#: The step at which faults come: everything has settled, and most of the training is ahead.
STEP = 60
TRAINER = Path(__file__).with_name("trainer.py")
#: Seconds for whatever has to come about: the longest is a death that one peer alone has to find out.
PATIENCE = 120.0
_LOOK = 0.05
_SAMPLE = 0.5


class ChaosError(Exception):
    """The row itself went wrong, and says nothing about the swarm: or the swarm did not even get that far."""


@dataclass(frozen=True)
class Scale:
    """How much is trained in each row."""

    epochs: int
    step_seconds: float
    #: Larger than the example's own, both of them: the training is then over its climb, and two runs are alike.
    batch_size: int = 32
    learning_rate: float = 0.1

    def arguments(self) -> list[str]:
        """Return the example's arguments."""
        said = {"epochs": self.epochs, "step-seconds": self.step_seconds}
        said |= {"batch-size": self.batch_size, "lr": self.learning_rate}
        return [word for name, value in said.items() for word in (f"--{name}", str(value))]


FULL, QUICK = Scale(48, 0.025), Scale(32, 0.02)


class Session:
    """What all rows of a run share: a directory, the nursery, and how large everything is."""

    def __init__(self, scale: Scale = FULL) -> None:
        self.scale = scale
        self._temporary = tempfile.TemporaryDirectory(prefix="gossip-chaos-")
        self.directory = Path(self._temporary.name)
        self.nursery = Nursery(self.directory)
        self._lock = threading.Lock()
        self._count = 0

    def __enter__(self) -> Session:
        self.nursery.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.nursery.__exit__(kind, error, trace)
        self._temporary.cleanup()

    def new_directory(self, name: str) -> Path:
        """Return a directory that nobody else has."""
        with self._lock:
            self._count += 1
            path = self.directory / f"{name}-{self._count}"
        path.mkdir()
        return path


@dataclass
class Swarm:
    """One run: its launcher, its peers, and what was seen of them. Use it in a ``with`` statement."""

    session: Session
    run_dir: Path
    options: Sequence[str] = ()
    #: Of trainer.py, ahead of the example's own.
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: What the launcher is started by, such as nsenter and its arguments.
    prefix: Sequence[str] = ()
    forked: bool = True
    #: How much is trained; None: as in all rows.
    scale: Scale | None = None
    peers: int = PEERS
    #: When the fault came, in seconds since 1970; what was before it does not count.
    fault_at: float = 0.0
    #: Bytes of each rank's process in memory, over time.
    memory: list[tuple[float, int, int]] = field(default_factory=list)
    #: Processes that were started beside the launcher, such as one that joins.
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)
    #: Further run directories, of those who came later.
    places: list[Path] = field(default_factory=list)

    def __enter__(self) -> Swarm:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **self.environment}
        if self.forked:
            environment["CHAOS_NURSERY"] = self.session.nursery.path
        self.run_dir.parent.mkdir(parents=True, exist_ok=True)
        self._environment = environment
        self._output = (self.run_dir.parent / f"{self.run_dir.name}.launcher.txt").open("ab")
        hosts = () if "--hostfile" in self.options else ("-n", str(self.peers))
        self.launcher = self._start("launch", *hosts, "--run-dir", str(self.run_dir), *self.options)
        self._ended = threading.Event()
        self.metronome = Metronome()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._sampler.join()
        self.metronome.close()
        for life in self.lives():
            self._kill_process(life["pid"])
        for process in (self.launcher, *self.others):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10.0 if kind is None else 0.5)
            if process.poll() is None:
                process.kill()
                process.wait()
        self._output.close()

    # Starting

    def _start(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        arguments = [*self.arguments, *(self.scale or self.session.scale).arguments()]
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "launch.cli", command, *options, str(TRAINER), *arguments],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def join(self, *options: str, where: str = "") -> subprocess.Popen[bytes]:
        """Let one more peer enter, by ``gossip join``; its output goes to the launcher's."""
        self.others.append(self._start("join", where or str(self.run_dir), *options))
        return self.others[-1]

    @property
    def rows(self) -> int:
        """The processes of each replica, whose rows have swarms of their own."""
        options = list(self.options)
        return int(options[options.index("--grid") + 1].partition("x")[0]) if "--grid" in options else 1

    # Looking

    def directory(self, rank: int) -> Path:
        """Return where a rank writes."""
        return self.run_dir / f"rank-{rank}"

    def directories(self) -> list[Path]:
        """Return where all ranks write, those who came later included."""
        return [path for place in (self.run_dir, *self.places) for path in place.glob("rank-*")]

    def lives(self) -> list[dict[str, Any]]:
        """Return the processes of all ranks, in the order in which they came."""
        lives = [life for path in self.directories() for life in lines(path / "lives.jsonl")]
        return sorted(lives, key=lambda life: float(life["time"]))

    def pid(self, rank: int) -> int:
        """Return the process that a rank is now."""
        return int([life["pid"] for life in self.lives() if life["rank"] == rank][-1])

    def endpoint(self, rank: int) -> str:
        """Return where a rank is reached now."""
        return str([life["endpoint"] for life in self.lives() if life["rank"] == rank][-1])

    def step(self, rank: int) -> int:
        """Return the last step of a rank."""
        with contextlib.suppress(OSError), (self.directory(rank) / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 2000))
            whole = file.read().decode().split("\n")[-2:-1]
            return int(json.loads(whole[0])["step"]) if whole and whole[0].startswith("{") else 0
        return 0

    def events(self, rank: int, kind: str = "") -> list[dict[str, Any]]:
        """Return what a rank wrote about, of one kind."""
        found = lines(self.directory(rank) / "events.jsonl")
        return [event for event in found if kind in ("", event["event"])]

    def saw(self, rank: int, what: str, of: int) -> bool:
        """Whether a rank has seen something happen to another: died, joined, returned, suspected."""
        return any(event["what"] == what and event["rank"] == of for event in self.events(rank, "member"))

    def output(self) -> str:
        """Return what the launcher said, and the end of each log."""
        texts = [Path(self._output.name).read_text(errors="replace")[-3000:]]
        for path in sorted(self.run_dir.glob("rank-*/log.txt")):
            texts.append(f"--- {path.parent.name}\n{path.read_text(errors='replace')[-1500:]}")
        return "\n".join(texts)

    def ended(self, rank: int) -> bool:
        """Whether a rank has ended well: it has written its summary, and is gone."""
        return (self.directory(rank) / "summary.json").exists() and not is_running(self.pid(rank))

    # Doing

    def reach(self, step: int = STEP, ranks: Collection[int] | None = None) -> None:
        """Wait until all have come to a step."""
        wanted = range(self.peers) if ranks is None else ranks
        self.until(lambda: min(self.step(rank) for rank in wanted) >= step, f"step {step} of ranks {list(wanted)}")

    def fault(self) -> None:
        """Say that it happens now: from here on it counts."""
        self.fault_at = time.time()

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a rank's process."""
        os.kill(self.pid(rank), number)

    def kill(self, *ranks: int) -> None:
        """End them as a crash would: no word to anybody."""
        for pid in [self.pid(rank) for rank in ranks]:
            os.kill(pid, signal.SIGKILL)

    def finish(self, ranks: Collection[int]) -> None:
        """Wait until these have finished their training, and end the others."""
        self.until(lambda: all(self.ended(rank) for rank in ranks), f"the end of ranks {sorted(ranks)}")
        for life in self.lives():
            self._kill_process(life["pid"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.launcher.wait(10.0)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        """Wait for something; raise with what everybody said if it does not come about."""

        def or_over() -> bool:
            if condition():
                return True
            over = self.launcher.poll() not in (None, -signal.SIGKILL)
            if over and not any(is_running(life["pid"]) for life in self.lives()) and not condition():
                raise ChaosError(f"all have ended, without {what}")
            return False

        try:
            until(or_over, what, seconds)
        except ChaosError as error:
            raise ChaosError(f"{error}\n{self.output()}") from None

    def _kill_process(self, pid: int) -> None:
        """End a process of this swarm, if it is still there."""
        if is_running(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE):
            for life in {life["rank"]: life for life in self.lives()}.values():
                with contextlib.suppress(OSError, ValueError):
                    status = Path(f"/proc/{life['pid']}/status").read_text()
                    size = next((row for row in status.splitlines() if row.startswith("VmRSS:")), "")
                    if size:  # a zombie has none
                        self.memory.append((time.time(), life["rank"], int(size.split()[1]) << 10))


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Wait for something that nobody signals."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ChaosError(f"it did not come about within {seconds:g} s: {what}")
        time.sleep(_LOOK)


def lines(path: Path) -> list[Any]:
    """Return the JSON of each whole line of a file that may still be written."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
