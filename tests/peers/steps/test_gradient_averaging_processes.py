"""All-reduce and a parameter server among real processes: launched, and with one that is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from swarms import LONGEST_PROCESS, clean_environment, reserved_ports
from test_processes import SCRIPT, finished, process

pytestmark = pytest.mark.timeout(2 * LONGEST_PROCESS)

#: A death is told within a second or two, and not after what suits a loaded machine.
QUICK = """
import json, sys, warnings
from dataclasses import replace
import torch
from gossip import presets
from gossip.membership.membership_settings import MembershipSettings
warnings.simplefilter("error")
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from peer_script import train
watchful = MembershipSettings(interval=0.6, timeout_floor=0.1, timeout_ceiling=0.2, suspicion_spread=1.0)
presets._PRESETS["loopback"] = replace(presets.preset("loopback"), membership=watchful)
train(**json.loads(sys.argv[2]))
"""


def quick(**options: Any) -> list[str]:
    return [sys.executable, "-c", QUICK, str(SCRIPT.parent), json.dumps(options)]


def results(directory: Path, ranks: range) -> list[dict[str, Any]]:
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in ranks]


@pytest.mark.parametrize("compress", ["none", "topk:share=10%,values=int8"])
def test_a_launched_swarm_ends_with_the_same_bits(compress: str, tmp_path: Path) -> None:
    options = {"out": str(tmp_path / "{rank}.json")}
    command = [sys.executable, "-m", "launch.cli", "launch", "-n", "3", "--algorithm", "allreduce", "--straggler"]
    command += ["1=2x", "--compress", compress, "--run-dir", str(tmp_path / "run"), str(SCRIPT), json.dumps(options)]
    ended = subprocess.run(
        command, env=clean_environment(), capture_output=True, text=True, timeout=LONGEST_PROCESS, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    first, *others = results(tmp_path, range(3))
    assert first["disagreement"] == 0.0
    assert set().union(*(one["seen"] for one in (first, *others))) == set(range(96))
    for other in others:
        assert other["agreed"] == first["agreed"], "who is out of data is not waited for, but catches up"
        for name, value in first["model"].items():
            if not name.endswith("num_batches_tracked"):
                assert other["model"][name] == value, name
        assert other["optimizer"] == first["optimizer"]


def test_when_one_of_three_is_killed_the_others_form_anew_and_end_well(tmp_path: Path) -> None:
    logs = [tmp_path / f"log-{rank}" for rank in range(3)]
    with reserved_ports(3) as ports:
        options: dict[str, Any] = {
            "algorithm": "allreduce",
            "hosts": [f"127.0.0.1:{port}" for port in ports],
            "start_timeout": LONGEST_PROCESS,
            "out": str(tmp_path / "{rank}.json"),
        }
        with (
            process(quick(rank=0, **options), logs[0]) as first,
            process(quick(rank=1, **options), logs[1]) as second,
            process(quick(rank=2, kill_at=5, **options), logs[2]) as third,
        ):
            finished(third, logs[2], -signal.SIGKILL)
            finished(first, logs[0])
            finished(second, logs[1])
    one, other = results(tmp_path, range(2))
    assert 2 not in one["view"] + other["view"]
    assert min(one["step"], other["step"]) > 12
    assert one["agreed"] == other["agreed"], "who is out of data is not waited for, but catches up"
    assert one["model"]["0.weight"] == other["model"]["0.weight"]
    assert set(one["seen"]) | set(other["seen"]) == set(range(96)), "what it had left undone was done"


def test_when_the_centre_of_a_parameter_server_is_killed_the_other_ends_and_says_why(tmp_path: Path) -> None:
    logs = [tmp_path / f"log-{rank}" for rank in range(2)]
    with reserved_ports(2) as ports:
        options: dict[str, Any] = {
            "algorithm": "parameter-server",
            "hosts": [f"127.0.0.1:{port}" for port in ports],
            "start_timeout": LONGEST_PROCESS,
            "epochs": 10_000,
        }
        with (
            process(quick(rank=0, kill_at=5, **options), logs[0]) as centre,
            process(quick(rank=1, **options), logs[1]) as worker,
        ):
            finished(centre, logs[0], -signal.SIGKILL)
            finished(worker, logs[1], 1)
    assert "the centre, rank 0, is gone, and the model with it" in logs[1].read_text()
