"""Swarms on a real Ray cluster: two raylets on loopback, started once for all tests here, by a process of their own.

Ray starts threads, handles signals and warns of things that are not ours; so it stays out of the process of pytest.
"""

from __future__ import annotations

import fcntl
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from swarms import clean_environment

SCRIPT = Path(__file__).parents[2] / "support" / "ray_script.py"
#: The exit code of the script if Ray did not start: it gives up after 30 seconds, also on a machine that is busy.
NOT_STARTED, ATTEMPTS = 75, 3
#: Seconds for all of it, unless something hangs.
LONGEST = 800.0
#: A machine that is busy takes some minutes: each actor is a process that imports torch.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def ran(output: Path, *scenarios: str) -> Path:
    """Go through scenarios on a new cluster; return where their results are."""
    output.mkdir()
    environment = clean_environment()
    environment["PYTHONPATH"] += f":{SCRIPT.parent}"
    command = [sys.executable, str(SCRIPT), str(output), *scenarios]
    for _ in range(ATTEMPTS):
        # Files, not pipes: whatever of Ray is left over for a moment would hold these open.
        with (output / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=output, env=environment, stdout=log, stderr=log)
            try:
                process.wait(LONGEST)
            finally:
                process.terminate()  # it ends its cluster and removes its files
                process.wait()
        if process.returncode != NOT_STARTED:
            break
    assert process.returncode == 0, (output / "log").read_text()
    return output


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Path]:
    """Return where the results are; the first process of pytest that comes here starts the cluster, others wait."""
    if worker_id == "master":
        yield ran(tmp_path_factory.mktemp("ray") / "output", "refused", "failing", "losses", "interrupted")
        return
    shared = tmp_path_factory.getbasetemp().parent
    with (shared / "ray-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        output = shared / "ray"
        if not output.exists():
            ran(output, "refused", "failing", "losses", "interrupted")
    yield output


def said(results: Path, scenario: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / f"{scenario}.json").read_text())
    assert "failed" not in found, found["failed"] + (results / "log").read_text()
    return found


def test_arguments_are_checked_before_anything_starts(results: Path) -> None:
    found = said(results, "refused")
    assert list(found["said"]) == found["wrong"]


def test_a_function_that_raises_ends_the_run_at_once_with_its_error(results: Path) -> None:
    found = said(results, "failing")["raises"]
    assert "none of 2 peers finished" in found["error"]
    assert "ZeroDivisionError('the data is not there')" in found["error"]
    assert "ZeroDivisionError" in found["cause"]
    assert found["restarts"] == [0, 0], "it would raise again"


def test_a_function_that_never_joins_is_told_so(results: Path) -> None:
    assert "returned without a call of peers.join()" in said(results, "failing")["never joins"]["error"]


def test_more_peers_than_there_is_room_for_are_refused_within_the_time_out(results: Path) -> None:
    error = said(results, "failing")["no room"]["error"]
    assert "no room for 9 peers within 1 s. Each takes 1 CPU, placed by SPREAD. Its 2 nodes have" in error


def test_a_killed_actor_comes_back_and_the_swarm_survives_a_node(results: Path) -> None:
    found = said(results, "losses")
    values = found["values"]
    lost = [rank for rank in range(3) if str(rank) not in values]
    assert len(lost) == 1, found
    assert "node has died" in found["errors"][str(lost[0])]
    assert len({found["nodes"][rank] for rank in range(3)}) == 2, "spread over the nodes"
    left = [found["nodes"][rank] for rank in range(3) if rank not in lost]
    assert len(set(left)) == 1
    assert found["restarts"][0] == 1
    one, other = values.values()
    assert one["apart"] <= 1e-3
    assert other["apart"] <= 1e-3
    assert one["weights"] == pytest.approx(other["weights"], abs=1e-3)
    assert one["weights"][:8] == pytest.approx([1.0] * 8, abs=0.05), "they have learnt something"
    assert all(metrics["step"] > 20 and math.isfinite(metrics["loss"]) for metrics in found["metrics"])


def test_keys_encrypt_and_are_not_in_the_environment(results: Path) -> None:
    for value in said(results, "losses")["values"].values():
        assert value["encrypted"]
        assert value["environment"] == ["GOSSIP_CHANNEL"]
        assert all(number.isdigit() for number in value["channel"].split(","))


def test_the_killed_peer_took_the_model_of_the_others(results: Path) -> None:
    said(results, "losses")
    events = [json.loads(line) for line in (results / "run" / "rank-0" / "events.jsonl").read_text().splitlines()]
    lives = [event["incarnation"] for event in events if event["event"] == "start"]
    assert lives == [0, 1000]
    metrics = [json.loads(line) for line in (results / "run" / "rank-0" / "metrics.jsonl").read_text().splitlines()]
    again = next(place for place, line in enumerate(metrics) if place and line["step"] == 1)
    assert metrics[again]["loss"] < metrics[0]["loss"] / 10, "it did not begin anew"


def test_the_run_can_be_watched_and_joined(results: Path) -> None:
    said(results, "losses")
    invitation = json.loads((results / "run" / "join.json").read_text())
    assert len(invitation["members"]) == 3
    assert all(invitation["members"].values()), "with the key of each"
    assert (results / "run" / "join.json").stat().st_mode & 0o777 == 0o600


def test_ctrl_c_stops_with_a_checkpoint(results: Path) -> None:
    files = said(results, "interrupted")["files"]
    assert any("checkpoints/step-" in name for name in files), files
    summary = json.loads((results / "run-2" / "rank-0" / "summary.json").read_text())
    assert summary["exit"] == "interrupted"


@pytest.mark.slow
def test_workers_of_ray_train_are_peers_beside_their_process_group(tmp_path: Path) -> None:
    """What a process group's store does is checked without Ray in tests/peers/session/test_store_table.py."""
    workers = said(ran(tmp_path / "output", "ray_train"), "ray_train")["workers"]
    assert [worker["rank"] for worker in workers] == [0, 1]
    assert all(worker["peers"] == 2 and worker["group"] == 2.0 for worker in workers)
    assert workers[0]["weights"] == pytest.approx(workers[1]["weights"], abs=1e-2)
