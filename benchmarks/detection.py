"""Deaths and false accusations, with real processes on a machine that has no core to spare.

    python -m benchmarks.detection [--preset lan] [--peers 8] [--deaths 20] [--minutes 5] [--burners 2] [--json]

As many processes as cores only burn CPU. First one peer after the other is killed with SIGKILL and started again, and
the time is measured until the first and the last of the others declare it dead. Then no peer is killed for some
minutes, so every peer that is declared dead is a false death. Bar: no false death. The load average is printed too.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, finish, parser_of, table

__all__ = ["main"]

_SCRIPT = Path(__file__).with_name("light_peer.py")
#: Nothing that is waited for takes longer than this: the bound of a detection with preset wan is far below.
_PATIENCE = 400.0


class Watched:
    """A swarm of light peers, and what they write down."""

    def __init__(self, directory: Path, preset: str, peers: int, deaths: int) -> None:
        self.run, self.stop, self.peers = directory / "run", directory / "stop", peers
        options = [
            "-n",
            str(peers),
            "--preset",
            preset,
            "--restart",
            str(deaths),
            "--run-dir",
            str(self.run),
            "--quiet",
        ]
        command = [sys.executable, "-m", "launch.cli", "launch", *options, str(_SCRIPT), str(self.stop), "0.2"]
        self._launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def events(self, rank: int, what: str) -> list[dict[str, Any]]:
        """Return what a peer noted of one kind."""
        path = self.run / f"rank-{rank}" / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        noted = [json.loads(line) for line in lines if line.endswith("\n")]
        return [one for one in noted if one["event"] == what]

    def died(self, rank: int, incarnation: int) -> dict[int, float]:
        """Return when who held a life of a rank for dead."""
        return {
            other: one["time"]
            for other in range(self.peers)
            for one in self.events(other, "member")
            if (one["rank"], one["incarnation"], one["state"]) == (rank, incarnation, "dead")
        }

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            if self._launcher.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"detection: {what} did not come about; the launcher: {self._launcher.poll()}")
            time.sleep(0.1)

    def trains(self, rank: int) -> bool:
        """Whether the latest life of a rank takes steps."""
        path, starts = self.run / f"rank-{rank}" / "metrics.jsonl", self.events(rank, "start")
        if not starts or not path.exists():
            return False
        lines = path.read_text().splitlines()
        return bool(lines) and json.loads(lines[-1])["time"] > starts[-1]["time"]

    def until_back(self, rank: int, lives: int) -> None:
        """Wait until a rank that has had ``lives`` lives trains in another one."""
        self.until(lambda: len(self.events(rank, "start")) > lives and self.trains(rank), f"the return of rank {rank}")

    def kill(self, rank: int) -> list[float]:
        """Kill a peer; return the seconds until each other one knew."""
        start = self.events(rank, "start")[-1]
        # Its launcher would start it again at once, and it would be back before anybody has missed it.
        self._launcher.send_signal(signal.SIGSTOP)
        at = time.time()
        os.kill(start["pid"], signal.SIGKILL)
        others = set(range(self.peers)) - {rank}
        try:
            self.until(lambda: self.died(rank, self._life(rank)).keys() >= others, f"the death of rank {rank}")
        finally:
            self._launcher.send_signal(signal.SIGCONT)
        return sorted(moment - at for moment in self.died(rank, self._life(rank)).values())

    def _life(self, rank: int) -> int:
        lives = [one["incarnation"] for one in self.events(rank, "start") + self.events(rank, "reincarnated")]
        return int(max(lives))

    def end(self) -> None:
        """Stop all."""
        self.stop.touch()
        self._launcher.wait(60)


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Keep ``count`` cores busy."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def main(
    preset: str = "lan", peers: int = 8, deaths: int = 20, minutes: float = 5.0, burners: int = 2, as_json: bool = False
) -> bool:
    """Print the figures and return whether the bar holds."""
    first: list[float] = []
    last: list[float] = []
    loads = []
    with tempfile.TemporaryDirectory() as directory, burning(burners):
        swarm = Watched(Path(directory), preset, peers, deaths)
        try:
            swarm.until(lambda: all(map(swarm.trains, range(peers))), "the start")
            for number in range(deaths):
                rank, lives = number % peers, len(swarm.events(number % peers, "start"))
                seconds = swarm.kill(rank)
                first.append(seconds[0])
                last.append(seconds[-1])
                print(f"  death {number + 1}: {seconds[0]:.1f} to {seconds[-1]:.1f} s", file=sys.stderr, flush=True)
                swarm.until_back(rank, lives)
            since = time.time()
            while time.time() < since + 60 * minutes:
                time.sleep(5)
                loads.append(os.getloadavg()[0])
            false = [
                one
                for rank in range(peers)
                for one in swarm.events(rank, "reincarnated") + swarm.events(rank, "member")
                if one["time"] > since and one.get("state", "dead") == "dead"
            ]
            suspicions = sum(
                one["time"] > since and one["state"] == "suspect"
                for rank in range(peers)
                for one in swarm.events(rank, "member")
            )
        finally:
            swarm.end()
    hours = peers * minutes / 60
    rows = [[preset, str(peers), *map(_spread, (first, last)), f"{hours:.2f}", str(len(false)), str(suspicions)]]
    head = ["preset", "peers", "first knows: median, p99 s", "all know", "peer-hours", "false deaths", "suspicions"]
    load = f"{statistics.fmean(loads):.1f}" if loads else "-"
    text = f"detection: {deaths} deaths, then {minutes:g} minutes at a load average of {load}\n{table(head, rows)}"
    found = {"first": first, "last": last, "false": len(false), "suspicions": suspicions, "peer_hours": hours}
    return finish(text, found, [Bar("false deaths", float(len(false)), "<=", 0.0)], as_json=as_json)


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "-"
    ordered = sorted(seconds)
    return f"{statistics.median(ordered):.1f}, {ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]:.1f}"


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--preset", default="lan")
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--deaths", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--burners", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    good = main(args.preset, args.peers, args.deaths, args.minutes, args.burners, args.json)
    raise SystemExit(0 if good else 1)
