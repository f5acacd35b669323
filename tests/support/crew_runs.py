"""Starts the processes of crews, and returns what they found. See `crew_script`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from crew_script import Case
from swarms import LONGEST_PROCESS, clean_environment, reserved_ports

from gossip.grids import Grid

SCRIPT = Path(__file__).parent / "crew_script.py"
#: Seconds: only a hang takes longer.
LONGEST_RUN = 3 * LONGEST_PROCESS
Found = dict[str, Any]


def run(cases: list[Case], directory: Path) -> dict[str, list[Found]]:
    """Let processes go through the cases; return what each of them found, by case."""
    sizes = {Grid.parse(case.grid).size for case in cases}
    written = json.dumps([asdict(case) for case in cases])
    with reserved_ports(len(sizes)) as ports, (directory / "log").open("w+") as log:
        places = [str(directory), ",".join(map(str, ports)), str(max(sizes))]
        started = subprocess.Popen(
            [sys.executable, str(SCRIPT), *places, written],
            env=clean_environment(),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = started.wait(2 * LONGEST_PROCESS)
        finally:
            with suppress(ProcessLookupError):  # its children too
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    assert code == 0, (directory / "log").read_text()
    return {
        case.name: [
            torch.load(directory / f"{case.name}-{rank}.pt", weights_only=False)
            for rank in range(Grid.parse(case.grid).size)
        ]
        for case in cases
    }
