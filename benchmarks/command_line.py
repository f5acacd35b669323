"""How much CPU time the command line takes before it answers: help and version, which import nothing slow.

    python -m benchmarks.command_line [--quick] [--json]

The figures are the CPU seconds, user and system, of a child process: the median and the most of several runs, in turns.
An interpreter that does nothing stands beside them, for no command can take less.

Bar: the median of each command is at most 0.3 s of CPU time.
"""

from __future__ import annotations

import os
import sys
from statistics import median

from benchmarks.bars import Bar, command, finish, table

__all__ = ["main"]

SECONDS = 0.3
COMMANDS = (("--help",), ("launch", "--help"), ("--version",))


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bars hold."""
    runs = 3 if quick else 15
    programs = {f"gossip {' '.join(words)}": ["-m", "launch.cli", *words] for words in COMMANDS}
    programs = {"python -c pass": ["-c", "pass"], **programs}
    for arguments in programs.values():
        cpu_seconds(arguments)  # so that the first does not have to fetch it from the disk, or compile it
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(runs):
        for name, arguments in programs.items():
            found[name].append(cpu_seconds(arguments))
    rows = [[name, f"{median(taken):.3f}", f"{max(taken):.3f}"] for name, taken in found.items()]
    text = f"command line: {runs} runs in turns\n" + table(["command", "CPU seconds", "at most"], rows)
    bars = [
        Bar(name, median(taken), "<=", SECONDS, " s") for name, taken in found.items() if name.startswith("gossip ")
    ]
    return finish(text, {"runs": found}, bars, as_json=as_json)


def cpu_seconds(arguments: list[str]) -> float:
    """Return the CPU seconds of a Python process with these arguments; one that fails ends the benchmark."""
    silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=silence)
    _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise SystemExit(f"command line: python {' '.join(arguments)} ended with exit code {code}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
