"""Peers that know each other by `hosts=`: one is killed and started again by the very same command.

Nobody counts its lives, and its death may not be noticed yet. It must come back as a life of its own and get the model
from the others, and all must agree at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proxies import until
from swarms import clean_environment, reserved_ports

SCRIPT = Path(__file__).parents[2] / "support" / "peer_script.py"
VICTIM = 2
#: Nothing here takes this long, unless it hangs.
LONGEST = 100.0


class Trio:
    """Three processes with fixed addresses."""

    def __init__(self, stack: ExitStack, directory: Path, faults: list[str]) -> None:
        hosts = [f"127.0.0.1:{port}" for port in stack.enter_context(reserved_ports(3))]
        self._stack = stack
        self._directory = directory
        self._options = {
            "hosts": hosts,
            "epochs": 100_000,
            "faults": faults,
            "stop_file": str(directory / "stop"),
            "run_dir": str(directory / "run"),
            "start_timeout": LONGEST,
        }
        self.processes = [self.start(rank) for rank in range(3)]

    def start(self, rank: int) -> subprocess.Popen[bytes]:
        """Start a rank, by the same command each time."""
        options = {**self._options, "rank": rank, "announce": str(self.sign(rank)), "out": str(self.result(rank))}
        command = [sys.executable, str(SCRIPT), json.dumps(options)]
        log = self._stack.enter_context((self._directory / f"log-{rank}").open("ab"))
        process = subprocess.Popen(command, env=clean_environment(), stdout=log, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def sign(self, rank: int) -> Path:
        """Where a rank says that it has trained a few steps."""
        return self._directory / f"trains-{rank}"

    def result(self, rank: int) -> Path:
        """Where a rank writes what it came to."""
        return self._directory / f"result-{rank}"

    def await_training(self, rank: int) -> None:
        """Wait until the process of this rank trains."""

        def trains() -> bool:
            assert self.processes[rank].poll() is None, (self._directory / f"log-{rank}").read_text()
            return self.sign(rank).exists()

        until(trains, f"rank {rank} trains", LONGEST)

    def restart(self, rank: int, gap: float) -> None:
        """Kill a process, and start it again after some seconds."""
        self.processes[rank].kill()
        self.processes[rank].wait()
        self.sign(rank).unlink()
        time.sleep(gap)  # not to wait for something: it is the experiment
        self.processes[rank] = self.start(rank)
        self.await_training(rank)

    def end(self) -> list[dict[str, Any]]:
        """Let all end; return what they came to."""
        (self._directory / "stop").touch()
        logs = ""
        for rank, process in enumerate(self.processes):
            process.wait(LONGEST)
            logs += (self._directory / f"log-{rank}").read_text()
        assert [process.returncode for process in self.processes] == [0, 0, 0], logs
        return [json.loads(self.result(rank).read_text()) for rank in range(3)]


def vector(model: dict[str, Any]) -> Any:
    return np.concatenate(
        [np.ravel(values) for name, (_, values) in sorted(model.items()) if "num_batches" not in name]
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("gap", "faults"),
    [
        (0.0, []),
        pytest.param(1.0, [], marks=pytest.mark.slow),
        pytest.param(10.0, [], marks=pytest.mark.slow),
        pytest.param(0.0, ["loss:10%"], marks=pytest.mark.slow),
        pytest.param(1.0, ["loss:10%"], marks=pytest.mark.slow),
    ],
)
def test_it_comes_back_and_all_agree(tmp_path: Path, gap: float, faults: list[str]) -> None:
    with ExitStack() as stack:
        trio = Trio(stack, tmp_path, faults)
        for rank in range(3):
            trio.await_training(rank)
        trio.restart(VICTIM, gap)
        results = trio.end()
        logs = [(tmp_path / f"log-{rank}").read_text() for rank in range(3)]
    assert all(result["disagreement"] <= 1e-3 for result in results), logs
    assert all(result["weight"] > 0 for result in results)
    first, *others = (vector(result["model"]) for result in results)
    scale = np.linalg.norm(first)
    assert all(np.linalg.norm(other - first) < 1e-2 * scale for other in others)
    assert results[VICTIM]["first"] != results[0]["first"], "it took the model of the others, not its own start"
    events = map(json.loads, (tmp_path / "run" / "rank-2" / "events.jsonl").read_text().splitlines())
    lives = [event["incarnation"] for event in events if event["event"] == "start"]
    assert len(lives) == 2, lives
    assert lives[1] > lives[0] > 10**12
    assert "rank 2 has joined" in logs[0], logs[0]
    assert "rank 1 has joined" not in logs[0], "a life that is heard of for the first time is no news"
