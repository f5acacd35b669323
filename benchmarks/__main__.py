"""Run the benchmarks that have a bar and take minutes at most; fail if one does not hold. The others run by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks import codecs, command_line, engine, planning, simulator
from benchmarks.bars import parser_of

__all__ = ["SHORT"]

SHORT: Mapping[str, Callable[[], bool]] = {
    "planning": planning.main,
    "command_line": command_line.main,
    "codecs": codecs.main,
    "simulator": simulator.main,
    "engine": engine.main,
}

if __name__ == "__main__":
    parser_of(f"{__doc__}\n\n  {', '.join(SHORT)}").parse_args()
    good = [main() for main in SHORT.values()]
    raise SystemExit(not all(good))
