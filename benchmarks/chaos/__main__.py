"""Run rows of the fault matrix, two at a time, and print a line for each as it finishes.

    python -m benchmarks.chaos [ROW ...] [--list] [--json] [--jobs N]

Exits with 1 if a bar does not hold.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict

from benchmarks.bars import parser_of
from benchmarks.chaos.harness import Session
from benchmarks.chaos.matrix import ROWS
from benchmarks.chaos.rows import UNDISTURBED, Result, reference, run_row

HEAD = (
    "fault",
    "pause",
    "steps",
    "lost",
    "mass error",
    "written off",
    "apart",
    "accuracy",
    "loss",
    "memory",
    "took",
    "",
)
WIDTHS = (22, 7, 6, 4, 10, 11, 8, 8, 6, 8, 6, 2)


def main() -> int:
    """Run what was asked for; return the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="which (default: all)")
    parser.add_argument("--list", action="store_true", help="print the rows and what they do")
    parser.add_argument("--json", action="store_true", help="one JSON object per row instead of a table")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2, help="rows at a time (default: 2)")
    args = parser.parse_args()
    if unknown := [name for name in args.rows if name not in ROWS]:
        parser.error(f"no row {', '.join(unknown)}; see --list")
    if args.list:
        for row in ROWS.values():
            needs = " (needs root)" if row.root else ""
            print(f"{row.name:22} {row.text}{needs}{row.why and f'; not held to {row.exempt}: {row.why}'}")
        return 0
    chosen = [name for name in args.rows or ROWS if name != UNDISTURBED]
    if os.geteuid() != 0 and (barred := [name for name in chosen if ROWS[name].root]):
        print(f"these need root, for namespaces and mounts, and are left out: {', '.join(barred)}", file=sys.stderr)
        chosen = [name for name in chosen if name not in barred]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    return _run(chosen, jobs=args.jobs, as_json=args.json)


def _run(chosen: list[str], *, jobs: int, as_json: bool) -> int:
    good = True
    with Session() as session:
        base = reference(session)
        if not as_json:
            print(_line(HEAD))
        _show(Result(UNDISTURBED, base, [], 0.0), as_json)

        def act(name: str) -> Result:
            print(f"... {name}", file=sys.stderr, flush=True)
            return run_row(session, name, base)

        with ThreadPoolExecutor(jobs) as pool:
            try:
                for done in as_completed([pool.submit(act, name) for name in chosen]):
                    result = done.result()
                    _show(result, as_json)
                    good = good and result.holds
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return int(not good)


def _show(result: Result, as_json: bool) -> None:
    if as_json:
        held = [{**asdict(bar), "holds": bar.holds} for bar in result.bars]
        print(
            json.dumps({"row": result.name, **asdict(result.outcome), "bars": held, "error": result.error}), flush=True
        )
        return
    one = result.outcome
    cells = (
        result.name,
        f"{one.pause_seconds:.2f}s",
        f"{one.pause_steps:.1f}",
        one.lost,
        f"{one.mass_error:.1e}",
        f"{one.written_off:.2f}",
        f"{one.apart:.1e}",
        f"{one.accuracy:.1f}%",
        f"{one.loss:.3f}",
        f"{one.memory_mib:+.1f}M",
        f"{result.seconds:.0f}s",
        "ok" if result.holds else "FAILED",
    )
    print(_line(cells), flush=True)
    row = ROWS[result.name]
    for bar in result.bars if not result.error else ():
        if not bar.holds:
            print(f"    {bar}{f': not held to it, for {row.why}' if bar.name in row.exempt else ''}", flush=True)
    if one.extra:
        print("    " + "; ".join(f"{name}: {value:.4g}" for name, value in one.extra.items()), flush=True)
    if result.error:
        print("    " + result.error.replace("\n", "\n    "), flush=True)


def _line(cells: tuple[object, ...]) -> str:
    first, *rest = (str(cell) for cell in cells)
    return "  ".join(
        [first.ljust(WIDTHS[0]), *(cell.rjust(width) for cell, width in zip(rest, WIDTHS[1:], strict=True))]
    )


if __name__ == "__main__":
    sys.exit(main())
