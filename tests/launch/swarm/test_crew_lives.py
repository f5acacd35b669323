"""Grids of real processes whose rows die and stand still: a crew leaves and returns as a unit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "support" / "crew_loop_script.py"
PATIENCE = 120.0

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]


def gossip(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "launch.cli", *map(str, arguments)]


class GridRun:
    """A launched grid of two replicas with two rows each, and what its processes wrote."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.run, self.stop = directory / "run", directory / "stop"
        command = gossip("launch", "--grid", "2x2", "--run-dir", self.run, *options, SCRIPT, self.stop)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def lines(self, rank: int, name: str) -> list[dict[str, Any]]:
        path = self.run / f"rank-{rank}" / name
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def log(self, rank: int) -> str:
        return (self.run / f"rank-{rank}" / "log.txt").read_text()

    def pids(self, rank: int) -> list[int]:
        return [one["pid"] for one in self.lines(rank, "events.jsonl") if one["event"] == "start"]

    def incarnations(self, rank: int) -> list[int]:
        return [one["incarnation"] for one in self.lines(rank, "events.jsonl") if one["event"] == "start"]

    def saw(self, rank: int) -> list[tuple[str, int]]:
        return [(one["what"], one["rank"]) for one in self.lines(rank, "events.jsonl") if one["event"] == "member"]

    def steps(self, rank: int) -> int:
        return len(self.lines(rank, "metrics.jsonl"))

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, "in vain"
            time.sleep(0.05)

    def trains_on(self, *ranks: int) -> None:
        """Wait until these ranks have made some more steps."""
        before = {rank: self.steps(rank) for rank in ranks}
        self.until(lambda: all(self.steps(rank) > before[rank] + 3 for rank in ranks))

    def finish(self) -> str:
        self.stop.touch()
        return self.process.communicate(timeout=PATIENCE)[0]


@contextmanager
def grid_run(directory: Path, *options: str) -> Iterator[GridRun]:
    one = GridRun(directory, *options)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()
        for rank in range(4):
            for pid in one.pids(rank):
                if is_there(pid):
                    os.kill(pid, signal.SIGKILL)
        assert one.process.stdout is not None
        one.process.stdout.close()


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def listening(pid: int) -> list[str]:
    """Return the addresses at which a process listens, as /proc writes them."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
        except FileNotFoundError:
            continue  # closed meanwhile
        if found:
            inodes.add(found[1])
    places = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                places.append(fields[1])
    return places


def test_a_crew_that_loses_its_lead_row_leaves_and_returns_as_a_unit(tmp_path: Path) -> None:
    with grid_run(tmp_path, "--restart", "1") as grid:
        grid.until(lambda: all(grid.steps(rank) > 3 for rank in range(4)))
        for rank in range(4):
            places = listening(grid.pids(rank)[-1])
            assert places, "the peer's own socket, and gloo's"
            assert all(place.startswith("0100007F:") for place in places), f"only on loopback: {places}"
        watched = subprocess.run(
            gossip("status", grid.run), capture_output=True, text=True, timeout=PATIENCE, check=False
        ).stdout
        assert watched.startswith("run, row 0 of 2 in each replica: 2 alive"), watched
        assert watched.splitlines()[1].split()[0] == "replica"
        joined = subprocess.run(
            gossip("join", grid.run, SCRIPT, grid.stop), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert joined.returncode == 2
        assert "the replicas of run have 2 processes each (--grid), and gossip join starts one" in joined.stderr
        os.kill(grid.pids(0)[-1], signal.SIGKILL)
        grid.until(lambda: [len(grid.pids(rank)) for rank in range(4)] == [2, 2, 1, 1])
        grid.trains_on(0, 1, 2, 3)
        out = grid.finish()
        assert grid.process.returncode == 0, out
    assert grid.incarnations(0) == grid.incarnations(1) == [0, 1000], "all rows begin the same life"
    assert "row 1 of replica 0 lost another row of its crew, so the replica ends" in grid.log(1)
    assert "Traceback" not in grid.log(1), "one sentence instead"
    assert ("left", 0) in grid.saw(3), "the mate of the dead row said goodbye to its own swarm"
    assert ("died", 0) not in grid.saw(3)
    assert "rank 1 ended because its crew lost a row (exit code 75)" in out
    assert "gossip: 4 of 4 peers finished" in out


@pytest.mark.slow
def test_a_row_that_stands_still_ends_its_crew_within_the_inner_timeout(tmp_path: Path) -> None:
    with grid_run(tmp_path, "--inner-timeout", "5s") as grid:
        grid.until(lambda: all(grid.steps(rank) > 3 for rank in range(4)))
        os.kill(grid.pids(3)[-1], signal.SIGSTOP)
        grid.until(lambda: not is_there(grid.pids(2)[-1]) and not is_there(grid.pids(3)[-1]))
        grid.trains_on(0, 1)
        out = grid.finish()
        assert grid.process.returncode == 1, out
    assert "it did not answer within 5 s (--inner-timeout)" in grid.log(2)
    assert "Traceback" not in grid.log(2)
    assert "rank 3 was ended by SIGKILL" in out, "nobody else could end it"


@pytest.mark.slow
def test_a_cut_between_two_rows_of_different_replicas_heals(tmp_path: Path) -> None:
    with grid_run(tmp_path, "--fault", "cut:0.1|1.1@5+1s") as grid:
        ended = "a cut that was injected ends"
        grid.until(lambda: all((grid.run / f"rank-{rank}" / "log.txt").exists() for rank in range(4)))
        grid.until(lambda: ended in grid.log(1) and ended in grid.log(3))
        grid.trains_on(0, 1, 2, 3)
        out = grid.finish()
        assert grid.process.returncode == 0, out
    assert "a cut from the replicas [1] is injected at step 5" in grid.log(1)
    assert "cut" not in grid.log(0) + grid.log(2), "the other row's swarm is not concerned"


@pytest.mark.slow
def test_an_injected_kill_and_restart_are_those_of_the_replica(tmp_path: Path) -> None:
    with grid_run(tmp_path, "--fault", "kill:1.1@10", "--fault", "restart:1.0@20") as grid:
        grid.until(lambda: [len(grid.pids(rank)) for rank in range(4)] == [1, 1, 2, 2])
        grid.trains_on(0, 1, 2, 3)
        out = grid.finish()
        assert grid.process.returncode == 0, out
    assert "rank 3 was ended by SIGKILL" in out
    assert "rank 2 is restarted" in out
    assert "rank 3 is restarted" in out
