"""``make demo``: four peers train together without a coordinator; one is slow, and one is killed and restarted."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from launch.cli import guarded
from launch.options.options import LaunchOptions
from launch.report.report import write_report
from launch.swarm.launching import launch
from launch.terminal import output

__all__ = ["main", "options"]

_WIDTH = 80
_SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "digits.py"
_RESULT = re.compile(r"(\d+) steps: own model ([\d.]+)%, average of all ([\d.]+)%")


def options(run_dir: Path) -> LaunchOptions:
    """Return the options of the demo."""
    return LaunchOptions(
        str(_SCRIPT),
        ("--epochs", "60", "--step-seconds", "0.02"),
        peers=4,
        run_dir=str(run_dir),
        straggler=("2=4x",),
        fault=("kill:1@100", "restart:1@150"),
    )


def main() -> int:
    """Run the demo and return the exit code."""
    console = output()
    width = min(console.width, _WIDTH)
    run_dir = Path(tempfile.mkdtemp(prefix="gossip-demo-"))
    console.print(
        "Four peers learn to read handwritten digits. After each step a peer sends half of its mass to one neighbour, "
        "a different one at each step, and mixes in the mass that has arrived. Rank 2 is four times slower than the "
        "others. Rank 1 is killed at its step 100, and restarted when the others are at step 150.\n",
        width=width,
    )
    code = launch(options(run_dir))
    results = {rank: _result(run_dir / f"rank-{rank}" / "log.txt") for rank in range(4)}
    console.print()
    for rank, result in results.items():
        if result is not None:
            steps, own, _ = result
            console.print(f"rank {rank}: {steps} steps in its last life, accuracy of its own model {own}%")
    averages = {result[2] for result in results.values() if result is not None}
    if averages:
        console.print(f"accuracy of the average of all: {' or '.join(sorted(averages))}%\n")
    report = write_report(run_dir)
    if code == 0:  # else it did not come to that
        console.print(
            "Observe: the slow peer did a quarter of the steps of the others and delayed no other peer. The others "
            "continued without the killed peer; after its restart it got the model from them and trained on.\n",
            width=width,
        )
    console.print(f"The report with all curves: {report}", soft_wrap=True)
    return code


def _result(log: Path) -> tuple[str, str, str] | None:
    found = _RESULT.findall(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else []
    return found[-1] if found else None


if __name__ == "__main__":
    sys.exit(guarded(main))
