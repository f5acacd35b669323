"""Launches a script, and returns what each of its peers wrote down: `DIRECTORY/RANK.json`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["written_down"]


def written_down(
    name: str, peers: int, script: Path, *arguments: str, options: Sequence[str] = (), patience: float = 600.0
) -> list[dict[str, Any]]:
    """Return what each peer wrote down; end the benchmark with the peers' logs if one did not.

    Args:
        name: of the benchmark, for its message.
        peers: how many.
        script: what they run; it is given the directory, then the arguments.
        arguments: of the script.
        options: of `gossip launch`.
        patience: seconds after which it is given up.
    """
    with tempfile.TemporaryDirectory() as directory:
        launch = [sys.executable, "-m", "launch.cli", "launch", "-n", str(peers), "--quiet", *options]
        done = subprocess.run(
            [*launch, "--run-dir", f"{directory}/run", str(script), directory, *arguments],
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
        results = [Path(directory) / f"{rank}.json" for rank in range(peers)]
        if done.returncode != 0 or not all(path.exists() for path in results):
            logs = [log.read_text()[-600:] for log in sorted(Path(directory).glob("run/rank-*/log.txt"))]
            raise SystemExit("\n".join([f"{name}: the launch failed", done.stdout, done.stderr, *logs]))
        return [json.loads(path.read_text()) for path in results]
