"""Processes of a script of a framework's user, started as torchrun would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from swarms import LONGEST_PROCESS, clean_environment, reserved_ports


def run_together(script: str, output: Path, options: dict[str, Any], environments: list[dict[str, str]]) -> list[Any]:
    """Run a script in several processes; return what each said, or the exit code of one that was killed.

    Args:
        script: a file beside this one.
        output: where the script writes.
        options: of the framework.
        environments: further variables of each process.
    """
    with reserved_ports(1) as (port,):
        meeting = {"WORLD_SIZE": str(len(environments)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, str(Path(__file__).with_name(script)), str(output), json.dumps(options), "{}"]
        processes = [
            subprocess.Popen(
                command,
                env=clean_environment(**meeting, RANK=str(rank), GOSSIP_START_TIMEOUT="150", **more),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, more in enumerate(environments)
        ]
        try:
            ends = [process.communicate(timeout=LONGEST_PROCESS) for process in processes]
        finally:
            for process in processes:
                process.kill()
    for process, (_, errors) in zip(processes, ends, strict=True):
        assert process.returncode in (0, -signal.SIGKILL), errors
    return [
        json.loads(out.splitlines()[-1]) if process.returncode == 0 else process.returncode
        for process, (out, _) in zip(processes, ends, strict=True)
    ]
