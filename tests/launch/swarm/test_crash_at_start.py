"""A rank that ends before it attaches its model: those who wait for it hear so at once, or it comes back."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "support" / "crash_script.py"
#: Seconds for anything that has to happen, on a busy machine; and the time limit of a start, which is never reached.
PATIENCE, NEVER = 150.0, "1000s"

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def launched(directory: Path, *options: str, script: tuple[str, ...]) -> tuple[int, str]:
    command = [sys.executable, "-m", "launch.cli", "launch", "-n", "3", "--run-dir", str(directory / "run")]
    done = subprocess.run(
        [*command, "--start-timeout", NEVER, *options, str(SCRIPT), *script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_those_who_wait_for_it_end_with_its_rank_and_signal(tmp_path: Path) -> None:
    began = time.monotonic()
    code, out = launched(tmp_path, script=("SIGKILL",))
    assert time.monotonic() - began < PATIENCE
    assert code == 3, out
    for rank in (0, 2):
        assert f"rank 1 was ended by SIGKILL before it attached a model, so rank {rank} waits for it in vain" in out


def test_if_it_is_started_again_all_train(tmp_path: Path) -> None:
    code, out = launched(tmp_path, "--restart", "1", script=("3", str(tmp_path / "crashed")))
    assert code == 0, out
    assert all(f"rank {rank} trains" in out for rank in range(3)), out


@pytest.mark.slow
def test_if_a_fault_starts_it_again_all_train(tmp_path: Path) -> None:
    """The kill is due as soon as the rank has joined; its script would go on."""
    (tmp_path / "crashed").touch()
    faults = ("--fault", "kill:1@0.001s", "--fault", "restart:1@0.002s")
    code, out = launched(tmp_path, *faults, script=("SIGKILL", str(tmp_path / "crashed")))
    assert code == 0, out
    assert all(f"rank {rank} trains" in out for rank in range(3)), out
