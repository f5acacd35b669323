"""The demo, as `make demo` runs it: it shows what it says that it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from launch import demo
from launch.swarm.launching import planned


def test_the_demo_is_a_valid_launch(tmp_path: Path) -> None:
    plan, faults = planned(demo.options(tmp_path))
    assert plan.world_size == 4
    assert [kill.rank for kill in faults.kills] == [restart.rank for restart in faults.restarts] == [1]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_demo_survives_what_it_injects() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "launch.demo"], capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 peers finished" in done.stdout
    assert "rank 1 was ended by SIGKILL" in done.stdout
    assert "rank 1 is restarted" in done.stdout
    steps = {int(rank): int(count) for rank, count in re.findall(r"rank (\d): (\d+) steps", done.stdout)}
    assert set(steps) == {0, 1, 2, 3}
    assert steps[2] < steps[0] / 2, "the straggler does less"
    average = re.search(r"average of all: ([\d.]+)%", done.stdout)
    assert average is not None
    assert float(average[1]) > 95
    report = re.search(r"curves: (\S+)", done.stdout)
    assert report is not None
    assert Path(report[1]).is_file()
