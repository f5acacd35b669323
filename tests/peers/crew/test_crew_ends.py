"""How the processes of a crew end: gloo aborts the end of an interpreter in which its process group is still there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from swarms import LONGEST_PROCESS, clean_environment, reserved_ports

pytestmark = pytest.mark.timeout(15 * LONGEST_PROCESS)

SCRIPT = Path(__file__).parents[2] / "support" / "crew_ends_script.py"
#: Each with the exit code of both processes.
WAYS = {"closed": 0, "forgotten": 0, "rows": 0, "left": 1}


def check_ends(rounds: int) -> None:
    """Start and end crews one after the other, and look at the exit codes."""
    with reserved_ports(1) as (port,):
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(port), str(rounds), *WAYS],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=LONGEST_PROCESS * (1 + rounds),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    codes = [int(line) for line in done.stdout.split()]
    assert codes == [code for code in WAYS.values() for _ in range(2)] * rounds, done.stderr
    print(f"{len(codes) // 2} crews of two ended one after the other, none with an abort")


def test_the_processes_of_a_crew_end_without_an_abort() -> None:
    check_ends(rounds=1)


@pytest.mark.slow
def test_fifty_crews_in_a_row_end_without_an_abort() -> None:
    check_ends(rounds=13)  # of four ways
