"""A swarm whose peers are killed, stopped and started all the time: does it train on, and does anything pile up?

    python -m benchmarks.soak [--minutes 2] [--seed 0] [--json]

Four peers are launched, up to ten run. Every 0.5 to 2 seconds one at random is killed, or stopped for some seconds, and
one more joins by ``gossip join``, with the rank of one that is known to be dead where there is one. The first two are
left alone: they are the long-lived ones. In the end all others are killed, and when the two have found that out they
are told to stop.

Bars: no pause of theirs of 10 seconds; their memory in the last quarter within 5% of that in the second; no more
threads in the end than in the beginning, and no more files and sockets, but for the connections that are kept to those
who were heard of last; no process left over; all mass accounted for, parcel by parcel.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.bars import Bar, finish, parser_of, table
from benchmarks.chaos.harness import Scale, Session, Swarm, is_running, lines, until
from benchmarks.chaos.outcome import EXACT, mass

__all__ = ["main"]

_MOST, _FEWEST = 10, 3
_SAFE = (0, 1)
#: Trained until told to stop.
_ENDLESS = Scale(epochs=1_000_000, step_seconds=0.05)
#: The part of the victims that is killed, and the seconds for which the others are stopped: some are declared dead.
_KILLED, _STOPPED = 0.6, (1.0, 25.0)
#: Files that may be open in the end beyond those of the beginning: two sockets for each of the driver's guests.
_SPARE = 40


class Soak:
    """The disturbances of one swarm."""

    def __init__(self, swarm: Swarm, seed: int) -> None:
        self._swarm = swarm
        self._draws = random.Random(seed)
        #: Ranks that are stopped, until when.
        self._stopped: dict[int, float] = {}
        self._killed: set[int] = set()
        self._next = swarm.peers
        self.counts = {"killed": 0, "stopped": 0, "started": 0}

    def running(self) -> dict[int, int]:
        """Return the processes that run, by rank."""
        return {life["rank"]: life["pid"] for life in self._swarm.lives() if is_running(life["pid"])}

    def disturb(self) -> None:
        """Kill or stop one, start one, and let those go on whose stop is over."""
        pids = self.running()
        for rank in [rank for rank, end in self._stopped.items() if end < time.monotonic()]:
            del self._stopped[rank]
            _signal(pids.get(rank), signal.SIGCONT)
        victims = [rank for rank in pids if rank not in _SAFE and rank not in self._stopped]
        if victims and len(pids) - len(self._stopped) > _FEWEST:
            self._strike(self._draws.choice(victims), pids)
        starting = sum(process.poll() is None for process in self._swarm.others) - sum(rank > 3 for rank in pids)
        if len(pids) + max(0, starting) < _MOST:
            self._join()

    def _strike(self, rank: int, pids: dict[int, int]) -> None:
        if self._draws.random() < _KILLED:
            _signal(pids[rank], signal.SIGKILL)
            self._killed.add(rank)
            self.counts["killed"] += 1
        else:
            _signal(pids[rank], signal.SIGSTOP)
            self._stopped[rank] = time.monotonic() + self._draws.uniform(*_STOPPED)
            self.counts["stopped"] += 1

    def _join(self) -> None:
        known = {event["rank"] for event in self._swarm.events(0, "member") if event["what"] == "died"}
        back = sorted(self._killed & known)
        rank = back[0] if back else self._next
        self._next += not back
        self._killed -= {rank}
        place = self._swarm.run_dir.parent / f"joined-{self.counts['started']}"
        self._swarm.places.append(place)
        self._swarm.join("--rank", str(rank), "--run-dir", str(place))
        self.counts["started"] += 1

    def clear(self) -> None:
        """Kill all but the long-lived ones, and wait until these have found out."""
        for process in self._swarm.others:
            if process.poll() is None:
                process.kill()

        def alone() -> bool:
            for rank, pid in self.running().items():
                if rank not in _SAFE:
                    _signal(pid, signal.SIGKILL)
            ranks = {life["rank"] for life in self._swarm.lives()}
            return all(self._members(rank) & ranks == set(_SAFE) for rank in _SAFE)

        until(alone, "the two find themselves alone", 120.0)

    def _members(self, rank: int) -> set[int]:
        """Return whom a peer believes to be there, of all that there may ever have been."""
        gone: dict[int, bool] = {}
        for event in self._swarm.events(rank, "member"):
            if event["what"] in ("died", "left", "joined", "returned"):
                gone[event["rank"]] = event["what"] in ("died", "left")
        return {other for other in range(self._next) if not gone.get(other, other >= self._swarm.peers)}

    def times(self, rank: int) -> list[float]:
        """Return when a peer finished its steps."""
        return [row["time"] for row in lines(self._swarm.directory(rank) / "metrics.jsonl")]


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


def _soak(swarm: Swarm, seconds: float, seed: int) -> dict[str, Any]:
    """Disturb a swarm for so long, then end it; return what was found."""
    draws, soak = random.Random(seed + 1), Soak(swarm, seed)
    swarm.reach(20)
    pids = soak.running()
    samples = [[_vitals(pids[rank]) for rank in _SAFE]]
    began = said = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        soak.disturb()
        samples.append([_vitals(pids[rank]) for rank in _SAFE])
        if now - said > 30:
            said = now
            print(f"  {now - began:.0f} s: {soak.counts}, {len(soak.running())} run", file=sys.stderr, flush=True)
        time.sleep(draws.uniform(0.5, 2.0))
    soak.clear()
    end = [_vitals(pids[rank]) for rank in _SAFE]
    times = [soak.times(rank) for rank in _SAFE]
    swarm.launcher.send_signal(signal.SIGINT)
    until(lambda: all(swarm.ended(rank) for rank in _SAFE), "the end of the two", 60.0)
    swarm.launcher.wait(60.0)
    quarter = len(samples) // 4
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    peers = range(len(_SAFE))
    return {
        **soak.counts,
        "steps": [len(one) for one in times],
        "pause": max(late - early for one in times for early, late in pairwise(one)),
        "memory": max(fmean(row[peer][0] for row in last) / fmean(row[peer][0] for row in second) for peer in peers),
        "threads": max(end[peer][1] - samples[0][peer][1] for peer in peers),
        "files": max(end[peer][2] - samples[0][peer][2] for peer in peers),
        "left": len(soak.running()),
        "mass": mass(swarm)[0],
    }


def main(minutes: float = 2.0, seed: int = 0, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    with Session() as session, Swarm(session, session.new_directory("soak") / "run", scale=_ENDLESS) as swarm:
        found = _soak(swarm, 60 * minutes, seed)
    rows = [
        ["killed, stopped, started", ", ".join(str(found[name]) for name in ("killed", "stopped", "started"))],
        ["steps of the long-lived", ", ".join(map(str, found["steps"]))],
        ["their longest pause, s", f"{found['pause']:.2f}"],
        ["their memory, last quarter to second", f"{found['memory']:.3f}"],
        ["threads, files more in the end", f"{found['threads']}, {found['files']}"],
        ["mass error", f"{found['mass']:.1e}"],
    ]
    bars = [
        Bar("longest pause", found["pause"], "<=", 10.0, " s"),
        Bar("memory", found["memory"], "<=", 1.05),
        Bar("threads more", float(found["threads"]), "<=", 0.0),
        Bar("files more", float(found["files"]), "<=", float(_SPARE)),
        Bar("processes left over", float(found["left"]), "<=", 0.0),
        Bar("mass error", found["mass"], "<=", EXACT),
    ]
    text = f"soak: {minutes:g} minutes, seed {seed}\n{table(['what', 'how much'], rows)}"
    return finish(text, found, bars, as_json=as_json)


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    raise SystemExit(0 if main(args.minutes, args.seed, args.json) else 1)
