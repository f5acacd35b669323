"""Grids that torchrun and Slurm start: a torchrun for each replica, and the tasks of one srun."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from swarms import LONGEST_PROCESS, clean_environment, reserved_ports

pytestmark = pytest.mark.timeout(2 * LONGEST_PROCESS)

SCRIPT = Path(__file__).parents[2] / "support" / "crew_start_script.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(commands: list[list[str]], environments: list[dict[str, str]], directory: Path) -> None:
    """Start commands at once, and wait until all have ended well."""
    with ExitStack() as stack:
        log = stack.enter_context((directory / "log").open("w+"))
        started = []
        for command, environment in zip(commands, environments, strict=True):
            one = subprocess.Popen(
                command,
                env=clean_environment(**environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            stack.callback(one.wait)
            stack.callback(one.terminate)  # torchrun ends its workers, too
            started.append(one)
        for one in started:
            try:
                code: int | None = one.wait(LONGEST_PROCESS)
            except subprocess.TimeoutExpired:
                code = None
            assert code == 0, (directory / "log").read_text()


def check(directory: Path) -> None:
    """Check that there were two replicas of two rows, and that they agree."""
    found: list[dict[str, Any]] = [json.loads((directory / f"{rank}.json").read_text()) for rank in range(4)]
    for rank, one in enumerate(found):
        assert (one["rank"], one["place"], one["world_size"]) == (rank, [rank // 2, rank % 2], 4)
        assert one["part"] == [2 - rank % 2, 6], "FSDP cuts the three outputs"
    assert any(one["view"] == [0, 1] for one in found), "one that has agreed may have left already"
    assert found[0]["weight"] == found[1]["weight"]
    assert found[2]["weight"] == found[3]["weight"]
    assert found[0]["weight"] == pytest.approx(found[2]["weight"], abs=0.02)


def test_a_torchrun_for_each_replica(tmp_path: Path) -> None:
    with reserved_ports(4) as ports:
        options = {
            "out": str(tmp_path / "{rank}.json"),
            "hosts": [f"127.0.0.1:{port}" for port in ports],
            "start_timeout": LONGEST_PROCESS,
            "inner_timeout": LONGEST_PROCESS,
        }
        commands = [[*TORCHRUN, str(SCRIPT), json.dumps({**options, "replica": replica})] for replica in range(2)]
        run(commands, [{}, {}], tmp_path)
    check(tmp_path)


@pytest.mark.slow
def test_a_replica_that_its_torchrun_restarts_joins_the_others_again(tmp_path: Path) -> None:
    with reserved_ports(4) as ports:
        options = {
            "out": str(tmp_path / "{rank}.json"),
            "stop": str(tmp_path / "stop"),
            "hosts": [f"127.0.0.1:{port}" for port in ports],
            "start_timeout": LONGEST_PROCESS,
        }
        command = [*TORCHRUN, "--max-restarts", "1", str(SCRIPT.with_name("crew_restart_script.py"))]
        run([[*command, json.dumps(options)]] * 2, [{"REPLICA": str(replica)} for replica in range(2)], tmp_path)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    assert [(one["replica"], one["life"]) for one in found] == [(0, 0), (0, 0), (1, 1), (1, 1)], "one replica returned"
    assert found[0]["steps"] == found[1]["steps"] > found[2]["steps"] == found[3]["steps"]


def test_the_tasks_of_srun_are_a_grid(tmp_path: Path) -> None:
    options = {"out": str(tmp_path / "{rank}.json"), "start_timeout": LONGEST_PROCESS, "inner_timeout": LONGEST_PROCESS}
    with reserved_ports(1) as ports:
        shared = {"SLURM_STEP_ID": "0", "SLURM_NTASKS": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0])}
        tasks = [{**shared, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(4)]
        run([[sys.executable, str(SCRIPT), json.dumps(options)]] * 4, tasks, tmp_path)
    check(tmp_path)


def test_hosts_without_torchrun_do_not_say_where_rows_meet(tmp_path: Path) -> None:
    options = {"out": "", "rank": 0, "hosts": [f"127.0.0.1:{port}" for port in range(1, 5)]}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(options)],
        env=clean_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LONGEST_PROCESS,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "gossip.errors.SettingsError: grid=2x2 with a list of hosts: nothing says where the 2 rows of a replica meet. "
        "Start each replica with torchrun --standalone --nproc-per-node 2, or all of the run with gossip launch"
    )
