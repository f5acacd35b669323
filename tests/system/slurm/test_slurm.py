"""Peers as jobs of a real Slurm: slurmctld, munge, and three nodes with networks of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proxies import until
from slurm_cluster import SOON, Cluster, find_programs

SCRIPT = Path(__file__).parents[2] / "support" / "peer_script.py"

# Longer than everything that a test waits for, so that what it started is ended by the test itself.
pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    programs = find_programs(tmp_path_factory.mktemp("packages"))
    one = Cluster(programs, tmp_path_factory.mktemp("slurm"))
    yield one
    one.close()


def agree(paths: list[Path]) -> list[dict[str, Any]]:
    """Check that peers have come to the same model, and return what they noted."""
    results = [json.loads(path.read_text()) for path in paths]
    for result in results:
        for name, (_, values) in results[0]["model"].items():
            if "running" not in name and "num_batches" not in name:
                assert np.allclose(values, result["model"][name][1], atol=1e-2)
    return results


def test_srun_needs_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    options = {"out": str(tmp_path / "result-{rank}"), "epochs": 1}
    command = ["srun", "-N3", "-n3", sys.executable, str(SCRIPT), json.dumps(options)]
    code, output = cluster.run(*command, cwd=tmp_path, seconds=SOON, GOSSIP_START_TIMEOUT="180")
    assert code == 0, output
    assert "3 peers train together" in output
    results = agree([tmp_path / f"result-{rank}" for rank in range(3)])
    assert [(one["rank"], one["world_size"]) for one in results] == [(rank, 3) for rank in range(3)]


def test_gossip_launch_takes_the_allocation(cluster: Cluster, tmp_path: Path) -> None:
    options = {"out": str(tmp_path / "result-{rank}"), "epochs": 1}
    launch = [sys.executable, "-m", "launch.cli", "launch", "--run-dir", "run", "--start-timeout", "180s"]
    command = ["salloc", "--nodes=2", "--ntasks=2", *launch, str(SCRIPT), json.dumps(options)]
    code, output = cluster.run(*command, cwd=tmp_path, seconds=SOON)
    assert code == 0, output
    assert "gossip: 2 of 2 peers finished" in output
    agree([tmp_path / f"result-{rank}" for rank in range(2)])
    assert [started(tmp_path / "run", rank)[0]["host"] for rank in range(2)] == ["n0", "n1"]
    watch = json.loads((tmp_path / "run" / "watch.json").read_text())
    assert watch["keys"], "encrypted"
    assert sorted(member.partition(":")[0] for member in watch["members"]) == ["n0", "n1"]
    cluster.await_idle()  # nothing of the launch holds the nodes


@pytest.mark.parametrize(
    "start", ["srun", pytest.param(f"{sys.executable} -m launch.cli launch --run-dir run", marks=pytest.mark.slow)]
)
def test_a_requeued_job_resumes_and_scancel_leaves_a_checkpoint(cluster: Cluster, tmp_path: Path, start: str) -> None:
    trains, run = tmp_path / "trains", tmp_path / "run"
    slowly = ["0=+100ms", "1=+100ms"]  # Slurm and the other peer need the cores as well
    options = json.dumps({"epochs": 1_000_000, "announce": str(trains), "stragglers": slowly})
    settings = {"GOSSIP_RUN_DIR": "run", "GOSSIP_CHECKPOINT_EVERY": "1000000", "GOSSIP_START_TIMEOUT": "180"}
    script = f"{start} {sys.executable if start == 'srun' else ''} {SCRIPT} '{options}'"
    job = cluster.submit(script, "--nodes=2", "--ntasks=2", "--requeue", cwd=tmp_path, **settings)
    until(trains.exists, "both train", SOON)
    cluster.asked("scontrol", "requeue", job)
    cluster.await_state(job, "PENDING")
    cluster.await_idle()
    saved = [newest(run, rank) for rank in range(2)]
    trains.unlink()
    cluster.asked("scontrol", "update", f"JobId={job}", "StartTime=now")  # Slurm would wait for two minutes
    until(trains.exists, "both train again", SOON)
    cluster.asked("scancel", job)
    cluster.await_state(job, "CANCELLED")
    cluster.await_idle()
    for rank in range(2):
        resumed = [event["step"] for event in events(run, rank) if event["event"] == "resume"]
        assert resumed == [saved[rank]]
        stops = [event["step"] for event in events(run, rank) if event["event"] == "stop"]
        assert stops == [saved[rank], newest(run, rank)]
        assert stops[1] > stops[0] > 0, "no step is lost, and some were done in each life"


def events(run: Path, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"rank-{rank}" / "events.jsonl").read_text().splitlines()]


def started(run: Path, rank: int) -> list[dict[str, Any]]:
    return [event for event in events(run, rank) if event["event"] == "start"]


def newest(run: Path, rank: int) -> int:
    """Return the step of the newest checkpoint."""
    return max(int(path.name.partition("-")[2]) for path in (run / f"rank-{rank}" / "checkpoints").glob("step-*"))
