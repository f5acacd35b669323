"""A model that does not fit into the memory of one process trains on a grid of 2x2, and as well as without a limit.

    python -m benchmarks.grid_memory [--quick] [--json]

A wide network is trained with AdamW three times, on the same samples. *Whole, unlimited*: one process, its batch that
of both replicas. *Whole, limited*: the same, but the process may allocate no more than a budget, which is less than its
parameters, gradients and optimizer state take. *Grid, limited*: two replicas of two processes each (tensor parallel),
each process with the same budget. Bars: the second ends because it gets no more memory, and the third's loss on
held-out samples is at most 1.1 times the first's. The first has learned something: its loss is at most half of the 0.52
that the mean of the targets would have.

FSDP2 is no way here: on the CPU its whole layers take as much memory for a while as they save.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.bars import Bar, command, finish, table

__all__ = ["main"]

_SCRIPT = Path(__file__).parent / "grid_memory_script.py"
_PATIENCE = 1800.0
#: Of the loss without a limit.
_LOSS = 1.1
#: Half of the variance of the targets.
_LEARNED = 0.26
#: Bytes of a parameter, its gradient and both moments of AdamW.
_STATE = 16
_BATCH = 32
#: What torch and Python say when the kernel gives no more memory.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "MemoryError", "Cannot allocate memory", "bad_alloc")
_Found = tuple[float, float, float]


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    width, layers, samples = (1024, 24, 2560) if quick else (2048, 16, 5120)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        shape = ["--width", str(width), "--layers", str(layers), "--samples", str(samples)]
        alone = ["--algorithm", "sgp:variance=own"]
        whole = _run(here / "whole", alone, [*shape, "--batch-size", str(2 * _BATCH)])
        assert not isinstance(whole, str), f"without a limit it runs: {whole}"
        loss, parameters, steps = whole
        state = parameters * _STATE / 2**20
        budget = int(0.85 * state)
        limited = _run(here / "limited", alone, [*shape, "--batch-size", str(2 * _BATCH), "--budget", str(budget)])
        options = ["--grid", "2x2", "--algorithm", "sgp:variance=own", "--compress", "int8"]
        grid = _run(here / "grid", options, [*shape, "--batch-size", str(_BATCH), "--budget", str(budget)])
    rows = [
        ["whole, unlimited", "any", f"{loss:.5f}", f"{steps:.0f}"],
        ["whole, limited", f"{budget} MiB", *_outcome(limited)],
        ["grid of 2x2, limited", f"{budget} MiB a process", *_outcome(grid)],
    ]
    text = f"memory: {parameters:.0f} parameters; with gradients and moments {state:.0f} MiB\n"
    text += table(["", "may allocate", "held-out loss", "steps"], rows)
    bars = [
        Bar("whole, unlimited: loss", loss, "<=", _LEARNED),
        Bar("whole, limited: ended for want of memory", float(limited == "out of memory"), ">=", 1),
        Bar(
            "grid, limited: loss over that without a limit",
            float("nan") if isinstance(grid, str) else grid[0] / loss,
            "<=",
            _LOSS,
        ),
    ]
    figures = {"parameters": parameters, "budget_mib": budget, "whole": whole, "limited": limited, "grid": grid}
    return finish(text, figures, bars, as_json=as_json)


def _run(folder: Path, options: list[str], arguments: list[str]) -> _Found | str:
    """Return the loss, the parameters of the replica and the steps of rank 0; if the run failed, why."""
    folder.mkdir()
    result = folder / "result.txt"
    launch = [sys.executable, "-m", "launch.cli", "launch", "--quiet", "--run-dir", str(folder / "run"), *options]
    done = subprocess.run(
        [*launch, str(_SCRIPT), *arguments, "--result", str(result)],
        timeout=_PATIENCE,
        capture_output=True,
        check=False,
    )
    print(f"  {folder.name}: exit code {done.returncode}", file=sys.stderr, flush=True)
    if done.returncode or not result.exists():
        logs = "".join(log.read_text(errors="replace") for log in folder.glob("run/rank-*/log.txt"))
        return "out of memory" if any(words in logs for words in _NO_MEMORY) else f"failed: {logs[-2000:]}"
    loss, parameters, steps = map(float, result.read_text().split())
    return loss, parameters, steps


def _outcome(found: _Found | str) -> list[str]:
    return [found, "-"] if isinstance(found, str) else [f"{found[0]:.5f}", f"{found[2]:.0f}"]


if __name__ == "__main__":
    sys.exit(command(main, __doc__))
