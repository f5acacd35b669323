"""How soon 8 peers of this machine train: from ``gossip launch -n 8`` to everybody's first step.

    python -m benchmarks.start [--quick] [--json]

Against what no launcher can save: importing torch, 8 times one after the other, and 8 times at once. In turns, several
times; the ratios are of the same turn, and the figures are medians.

Bar: at most twice as long as importing torch 8 times, one after the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.bars import Bar, command, finish, table

__all__ = ["main"]

N = 8
TIMES = 2.0
_PATIENCE = 300.0
_SCRIPT = Path(__file__).parent / "start_script.py"


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    _imports(1)  # so that the first does not have to fetch it from the disk
    found = []
    for _ in range(1 if quick else 5):
        found.append(
            {"launch": _launch(), "one after the other": sum(_imports(1) for _ in range(N)), "at once": _imports(N)}
        )
    serial = [run["launch"] / run["one after the other"] for run in found]
    parallel = [run["launch"] / run["at once"] for run in found]
    rows = [
        [f"gossip launch -n {N}, to the last first step", f"{median(run['launch'] for run in found):.2f}", ""],
        *(
            [f"import torch {N} times, {how}", f"{median(run[how] for run in found):.2f}", f"{median(ratios):.2f}"]
            for how, ratios in (("one after the other", serial), ("at once", parallel))
        ),
    ]
    text = f"start: {len(found)} runs in turns on {os.cpu_count()} cores\n"
    text += table(["what", "seconds", "launch over it"], rows)
    bars = [Bar("launch over imports one after the other", median(serial), "<=", TIMES)]
    return finish(text, {"runs": found}, bars, as_json=as_json)


def _launch() -> float:
    """Return the seconds from the command to the moment at which the last peer had done its first step."""
    with tempfile.TemporaryDirectory() as run_dir:
        began = time.time()
        done = subprocess.run(
            [sys.executable, "-m", "launch.cli", "launch", "-n", str(N), "--quiet", "--run-dir", run_dir, str(_SCRIPT)],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode != 0:
            logs = [
                f"{log.parent.name}: {log.read_text()[-600:]}" for log in sorted(Path(run_dir).glob("rank-*/log.txt"))
            ]
            raise SystemExit("\n".join(["start: the launch failed", done.stdout, done.stderr, *logs]))
        lines = [(Path(run_dir) / f"rank-{rank}" / "metrics.jsonl").read_text().splitlines() for rank in range(N)]
    return max(float(json.loads(of_rank[0])["time"]) for of_rank in lines) - began


def _imports(count: int) -> float:
    """Return the seconds that ``count`` processes take to import torch at once."""
    began = time.monotonic()
    processes = [subprocess.Popen([sys.executable, "-c", "import torch"]) for _ in range(count)]
    for process in processes:
        process.wait(_PATIENCE)
    return time.monotonic() - began


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
