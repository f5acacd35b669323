"""A swarm whose peers are killed, stopped and started all the time: does it train on, and does anything pile up?

    python -m benchmarks.soak [--minutes 2] [--seed 0] [--json]

Four peers are launched, up to ten run. Every 0.5 to 2 seconds one at random is killed, or stopped for some seconds, and
one more joins by ``gossip join``, with the rank of a dead one where there is one. The first two are left alone: they
are the long-lived ones. Bars: no pause of theirs of 10 seconds; their memory in the last quarter within 5% of that
in the second; no more threads, files and sockets in the end than before; no process left over; all mass accounted for.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.bars import Bar, finish, table
from launch.invitation import WATCH, found
from launch.lookout import Lookout

__all__ = ["main"]

_SCRIPT = Path(__file__).with_name("light_peer.py")
_LAUNCHED, _MOST, _SAFE = 4, 10, (0, 1)
_STEP = 0.05
_PARAMETERS = 100_000
#: Files and threads may be so many more in the end: connections to peers that just came.
_SPARE = 24


class Soak:
    """One swarm under stress."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.run, self.stop = directory / "run", directory / "stop"
        self._draws = random.Random(seed)
        self._joined: list[subprocess.Popen[bytes]] = []
        self._stopped: dict[int, float] = {}
        self._killed: set[int] = set()
        self.counts = {"killed": 0, "stopped": 0, "started": 0}
        self._launcher = self._start("launch", "-n", str(_LAUNCHED), "--run-dir", str(self.run))

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        script = [str(_SCRIPT), str(self.stop), str(_STEP), str(_PARAMETERS)]
        return subprocess.Popen(
            [sys.executable, "-m", "launch.cli", *command, "--quiet", *script],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def events(self, rank: int, what: str) -> list[dict[str, Any]]:
        """Return what a peer noted of one kind."""
        path = self.run / f"rank-{rank}" / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [one for one in map(json.loads, (line for line in lines if line.endswith("\n"))) if one["event"] == what]

    def times(self, rank: int) -> list[float]:
        """Return when a peer finished its steps."""
        path = self.run / f"rank-{rank}" / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line)["time"] for line in lines if line.endswith("\n")]

    def pids(self) -> dict[int, int]:
        """Return the processes that run, by rank."""
        found = {}
        for path in self.run.glob("rank-*"):
            rank = int(path.name.removeprefix("rank-"))
            starts = self.events(rank, "start")
            if starts and Path(f"/proc/{starts[-1]['pid']}").exists():
                found[rank] = starts[-1]["pid"]
        return found

    def disturb(self) -> None:
        """Kill or stop one, start one, and let those go on whose stop is over."""
        now = time.monotonic()
        pids = self.pids()
        for rank in [rank for rank, until in self._stopped.items() if until < now]:
            del self._stopped[rank]
            _signal(pids.get(rank), signal.SIGCONT)
        victims = [rank for rank in pids if rank not in _SAFE and rank not in self._stopped and self.times(rank)]
        if victims and len(pids) > 3:
            rank = self._draws.choice(victims)
            if self._draws.random() < 0.6:
                _signal(pids[rank], signal.SIGKILL)
                self._killed.add(rank)
                self.counts["killed"] += 1
            else:
                _signal(pids[rank], signal.SIGSTOP)
                self._stopped[rank] = now + self._draws.uniform(1, 25)  # some long enough to be taken for dead
                self.counts["stopped"] += 1
        self._joined = [one for one in self._joined if one.poll() is None]
        if len(pids) + sum(self.times(rank) == [] for rank in pids) < _MOST and len(self._joined) < 8:
            self._join(pids)

    def _join(self, pids: dict[int, int]) -> None:
        back = sorted(self._killed - pids.keys())
        choice = ["--rank", str(back[0])] if back else []
        self._killed -= set(back[:1])
        directory = ["--run-dir", str(self.run / f"joined-{self.counts['started']}")]
        self._joined.append(self._start("join", str(self.run), *choice, *directory))
        self.counts["started"] += 1

    def end(self) -> int:
        """Stop all; return how many processes had to be killed."""
        for pid in self.pids().values():
            _signal(pid, signal.SIGCONT)
        self.stop.touch()
        left = 0
        for process in (self._launcher, *self._joined):
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                left += 1
        for pid in self.pids().values():
            _signal(pid, signal.SIGKILL)
            left += 1
        return left


def _signal(pid: int | None, number: int) -> None:
    try:
        if pid is not None:
            os.kill(pid, number)
    except ProcessLookupError:
        return


def _vitals(pid: int) -> tuple[float, int, int]:
    """Return the private memory of a process in MiB, its threads, and its files and sockets."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return (
        int(status["RssAnon"].split()[0]) / 1024,
        int(status["Threads"]),
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
    )


def main(minutes: float = 2.0, seed: int = 0, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    draws = random.Random(seed)
    samples: list[list[tuple[float, int, int]]] = []
    with tempfile.TemporaryDirectory() as directory:
        soak = Soak(Path(directory), seed)
        try:
            while not all(len(soak.times(rank)) > 3 for rank in range(_LAUNCHED)):
                time.sleep(0.2)
            began = time.monotonic()
            pids = soak.pids()
            while (now := time.monotonic() - began) < 60 * minutes:
                soak.disturb()
                samples.append([_vitals(pids[rank]) for rank in _SAFE])
                time.sleep(draws.uniform(0.5, 2.0))
                if int(now) % 30 == 0:
                    print(f"  {now:.0f} s: {soak.counts}, {len(soak.pids())} run", file=sys.stderr, flush=True)
            with Lookout(found(str(soak.run), WATCH)) as lookout:
                members = len([one for one in lookout.look()["members"] if one["membership"] != "dead"])
        finally:
            left = soak.end()
        gaps = [max(b - a for a, b in pairwise(times)) for times in map(soak.times, _SAFE)]
        steps = [len(soak.times(rank)) for rank in _SAFE]
        summaries = [json.loads((soak.run / f"rank-{rank}" / "summary.json").read_text()) for rank in _SAFE]
    quarter = len(samples) // 4
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    memory = max(
        fmean(row[peer][0] for row in last) / fmean(row[peer][0] for row in second) for peer in range(len(_SAFE))
    )
    more = max(
        max(row[peer][kind] for row in last) - max(row[peer][kind] for row in second)
        for peer in range(len(_SAFE))
        for kind in (1, 2)
    )
    rows = [
        ["killed, stopped, started", ", ".join(str(count) for count in soak.counts.values())],
        ["members in the end", str(members)],
        ["steps of the long-lived", ", ".join(map(str, steps))],
        ["their longest pause, s", f"{max(gaps):.2f}"],
        ["their lives", ", ".join(str(one["incarnation"] + 1) for one in summaries)],
        ["memory, last quarter to second", f"{memory:.3f}"],
        ["threads or files more than in the second quarter", str(more)],
    ]
    bars = [
        Bar("longest pause", max(gaps), "<=", 10.0, " s"),
        Bar("memory", memory, "<=", 1.05),
        Bar("threads or files more", float(more), "<=", float(_SPARE)),
        Bar("processes left over", float(left), "<=", 0.0),
    ]
    text = f"soak: {minutes:g} minutes, seed {seed}\n{table(['what', 'how much'], rows)}"
    return finish(text, {"counts": soak.counts, "gaps": gaps, "memory": memory, "more": more}, bars, as_json=as_json)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    raise SystemExit(0 if main(args.minutes, args.seed, args.json) else 1)
