"""Tables and bars of benchmarks: how figures are printed, and what they are held against."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Bar", "command", "finish", "parser_of", "table"]


@dataclass(frozen=True)
class Bar:
    """A figure and what it has to be."""

    name: str
    value: float
    sense: str
    limit: float
    unit: str = ""

    @property
    def holds(self) -> bool:
        """Whether the figure is on the right side; NaN never is."""
        return self.value >= self.limit if self.sense == ">=" else self.value <= self.limit

    def __str__(self) -> str:
        verdict = "ok" if self.holds else "FAILED"
        return f"{self.name}: {self.value:.3g}{self.unit} (bar: {self.sense} {self.limit:g}{self.unit}): {verdict}"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table: the first column to the left, all others to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        padded = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  " + "  ".join([row[0].ljust(widths[0]), *padded[1:]]).rstrip())
    return "\n".join(lines)


def finish(text: str, figures: dict[str, Any], bars: Sequence[Bar], *, as_json: bool) -> bool:
    """Print the table and the bars, or all of it as one JSON object; return whether the bars hold."""
    good = all(bar.holds for bar in bars)
    if as_json:
        print(json.dumps({**figures, "bars": [{**asdict(bar), "holds": bar.holds} for bar in bars], "bars_hold": good}))
    else:
        print(text)
        for bar in bars:
            print(f"  {bar}")
    return good


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help says how the benchmark is called."""
    spec = sys.modules["__main__"].__spec__
    called = None if spec is None else f"python -m {spec.name.removesuffix('.__main__')}"
    kind = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=called, description=text, formatter_class=kind, allow_abbrev=False)


def command(main: Callable[..., bool], text: str | None) -> int:
    """Run a benchmark from the command line; return the exit code: 1 if a bar does not hold."""
    parser = parser_of(text)
    parser.add_argument("--quick", action="store_true", help="less of everything, for a look")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    args = parser.parse_args()
    return int(not main(quick=args.quick, as_json=args.json))
