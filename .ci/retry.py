"""Run the tests, and run each test that failed once more, alone.

    python .ci/retry.py COMMAND ...

COMMAND runs pytest, directly or through make. The exit code is 0 if all tests passed, or if those that failed passed
the second time; each of these is named in a last line ``unsteady: NODE ID``. It is 1 if a test failed twice, if more
failed than `LIMIT`, or if something other than a single test went wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from failed_tests import REPORT, Outcome

__all__ = ["LIMIT", "main"]

#: The most failed tests that are run again: when more fail, something is broken and not unsteady.
LIMIT = 10


def main(command: Sequence[str]) -> int:
    """Run a command that runs pytest, then the failed tests again; return the exit code."""
    code, outcome, _ = _run(command)
    if code == 0 and outcome.status == 0:  # a command may hide that pytest failed, or never run it
        return 0
    if reason := _in_the_way(outcome):
        _say(f"no test is run again: {reason}")
        return 1
    passed = {name: _passes(name, outcome.seed) for name in outcome.failed}
    for name, second in passed.items():
        _say(f"unsteady: {name}" if second else f"failed twice: {name}")
    return 0 if all(passed.values()) else 1


def _in_the_way(outcome: Outcome) -> str:
    """Say why a second run of the failed tests would prove nothing; the text is empty if it would prove something."""
    if outcome.broken:
        return f"not only tests failed: {', '.join(outcome.broken)}"
    if outcome.skipped:
        return f"tests were skipped: {', '.join(outcome.skipped)}"
    if outcome.status < 0:
        return "pytest did not come to its end"
    if outcome.status != 1:
        return f"pytest ended with exit code {outcome.status}"
    if not outcome.failed:
        return "no single test failed"
    if len(outcome.failed) > LIMIT:
        return f"{len(outcome.failed)} tests failed, and more than {LIMIT} mean that something is broken"
    return ""


def _passes(name: str, seed: int | None) -> bool:
    """Run one test alone, with the same random numbers as before. Show what pytest says only if the test fails.

    The output of a run has one closing line of pytest's, unless the run is red.
    """
    _say(f"once more, alone: {name}")
    seeded = [] if seed is None else [f"--randomly-seed={seed}"]
    code, outcome, said = _run([sys.executable, "-m", "pytest", "-n", "0", *seeded, name], quiet=True)
    passed = code == 0 and not outcome.skipped
    if not passed:
        _say(said)
    return passed


def _run(command: Sequence[str], *, quiet: bool = False) -> tuple[int, Outcome, str]:
    """Run pytest with the plugin `failed_tests`; return the exit code, what it wrote, and the output if it is quiet."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "outcome.json"
        path = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            REPORT: str(report),
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} -p failed_tests".strip(),
        }
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.STDOUT if quiet else None,
            text=True,
            errors="replace",
            check=False,
        )
        return done.returncode, Outcome.read(report), done.stdout or ""


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
