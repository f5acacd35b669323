"""What only real processes can show: launchers, kills, and runs that are interrupted and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from peer_script import train
from swarms import LONGEST_PROCESS, clean_environment, reserved_ports

pytestmark = pytest.mark.timeout(2 * LONGEST_PROCESS)

SCRIPT = Path(__file__).parents[2] / "support" / "peer_script.py"


@contextmanager
def process(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, and see that it is gone at the end."""
    with log.open("wb") as output:
        one = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=clean_environment(**environment)
        )
    try:
        yield one
    finally:
        one.kill()
        one.wait()


def script(**options: Any) -> list[str]:
    return [sys.executable, str(SCRIPT), json.dumps(options)]


def finished(one: subprocess.Popen[bytes], log: Path, code: int = 0) -> None:
    try:
        found: int | None = one.wait(LONGEST_PROCESS)
    except subprocess.TimeoutExpired:
        found = None
    assert found == code, log.read_text()


def appears(path: Path, one: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for a file that a process writes."""
    deadline = time.monotonic() + LONGEST_PROCESS
    while not path.exists():
        assert one.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def fit(results: list[dict[str, Any]], samples: int = 96, epochs: int = 3) -> None:
    """Check that the peers made up one swarm."""
    n = len(results)
    assert sorted(one["rank"] for one in results) == list(range(n))
    assert all(one["world_size"] == n for one in results)
    assert all(one["first"] == results[0]["first"] for one in results), "all start from the same weights"
    assert all(one["disagreement"] <= 1e-3 for one in results)
    assert sum(one["samples"] for one in results) >= samples * epochs
    assert set().union(*(one["seen"] for one in results)) == set(range(samples))
    for name, (_, values) in results[0]["model"].items():
        if not name.endswith("num_batches_tracked"):
            for other in results[1:]:
                assert values == pytest.approx(other["model"][name][1], abs=0.02), name


def test_under_torchrun_the_script_is_a_swarm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    options = {"out": str(tmp_path / "{rank}.json"), "start_timeout": LONGEST_PROCESS}
    log = tmp_path / "log"
    with process([*command, str(SCRIPT), json.dumps(options)], log) as one:
        finished(one, log)
    fit([json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)])


def test_under_slurm_the_script_is_a_swarm_whatever_the_seeds(tmp_path: Path) -> None:
    logs = [tmp_path / f"log-{rank}" for rank in range(2)]
    with reserved_ports(1) as ports:
        shared = {"SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0])}
        commands = [
            script(out=str(tmp_path / "{rank}.json"), seed=rank, start_timeout=LONGEST_PROCESS) for rank in range(2)
        ]
        with (
            process(commands[0], logs[0], SLURM_PROCID="0", SLURM_LOCALID="0", **shared) as first,
            process(commands[1], logs[1], SLURM_PROCID="1", SLURM_LOCALID="1", **shared) as second,
        ):
            finished(first, logs[0])
            finished(second, logs[1])
    fit([json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)])


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("step", "samples", "model", "optimizer", "scheduler", "draw")}


def test_a_run_that_is_killed_and_resumed_equals_one_that_was_not(tmp_path: Path) -> None:
    """Twice killed by SIGKILL: between two checkpoints, and in the epoch after; to the last bit the same."""
    options = {"checkpoint_every": 4, "seed": 3, "environment": {}}
    whole = train(run_dir=str(tmp_path / "whole"), **options)
    assert (whole["step"], whole["began"]) == (36, 0)
    log = tmp_path / "log"
    del options["environment"]
    for kill_at in (7, 22):
        with process(script(run_dir=str(tmp_path / "run"), resume=True, kill_at=kill_at, **options), log) as one:
            finished(one, log, -signal.SIGKILL)
    torch.manual_seed(99)
    resumed = train(run_dir=str(tmp_path / "run"), resume=True, **{**options, "seed": 5, "environment": {}})
    assert resumed["began"] == 20
    assert comparable(resumed) == comparable(whole)
    assert resumed["seen"] == whole["seen"][-len(resumed["seen"]) :]
    lines = (tmp_path / "run" / "rank-0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines][-16:] == list(range(21, 37))


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path: Path) -> None:
    options = {"run_dir": str(tmp_path / "run"), "checkpoint_every": 4, "seed": 3, "environment": {}}
    whole = train(**options)
    newest = max((tmp_path / "run" / "rank-0" / "checkpoints").iterdir(), key=lambda one: one.name)
    for path in newest.rglob("*"):
        if path.is_file():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0xFF
            path.write_bytes(data)
    resumed = train(**options, resume=True)
    assert resumed["began"] == 32
    assert comparable(resumed) == comparable(whole)
    noted = (tmp_path / "run" / "rank-0" / "events.jsonl").read_text()
    assert newest.name in noted, "it is said"


def test_a_killed_peer_comes_back_and_gets_the_state_from_those_who_train_on(tmp_path: Path) -> None:
    logs = [tmp_path / f"log-{number}" for number in range(4)]
    stop, again = tmp_path / "stop", tmp_path / "again"
    options = {"start_timeout": LONGEST_PROCESS, "samples": 20_000, "epochs": 1000, "consensus": False}
    with reserved_ports(3) as ports:
        options["hosts"] = [f"127.0.0.1:{port}" for port in ports]
        started = [tmp_path / f"started-{rank}" for rank in range(2)]
        staying = [
            script(
                rank=rank,
                announce=str(started[rank]),
                announce_at=6,
                stop_file=str(stop),
                out=str(tmp_path / "{rank}.json"),
                **options,
            )
            for rank in range(2)
        ]
        dying = script(rank=2, kill_at=5, **options)
        back = script(
            rank=2,
            incarnation=1000,
            seed=9,
            announce=str(again),
            stop_file=str(stop),
            out=str(tmp_path / "2.json"),
            **options,
        )
        with (
            process(staying[0], logs[0]) as first,
            process(staying[1], logs[1]) as second,
            process(dying, logs[2]) as third,
        ):
            finished(third, logs[2], -signal.SIGKILL)
            for one, path, log in zip((first, second), started, logs[:2], strict=True):
                appears(path, one, log)
            with process(back, logs[3]) as fourth:
                appears(again, fourth, logs[3])
                stop.touch()
                for one, log in zip((first, second, fourth), (logs[0], logs[1], logs[3]), strict=True):
                    finished(one, log)
    results = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    start, adopted = results[0]["first"], results[2]["first"]
    assert adopted != start, "it got what the others had trained to by then"
    assert adopted["0.weight"] != start["0.weight"]
    assert results[2]["step"] >= 3
    assert all(one["step"] > 5 for one in results[:2]), "the others kept training"
