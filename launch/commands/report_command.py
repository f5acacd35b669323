"""``gossip report``: a web page about a run, during or after it."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "report",
        help="make a web page about a run",
        description="Write one self-contained web page about a run: its options, how each rank ended, curves of loss, "
        "speed, waiting time and traffic, and a time line of events.",
        allow_abbrev=False,
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="the run's directory, finished or not")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the page to write (default: RUN/report.html)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the report and say where it is."""
    from launch.report.report import write_report

    print(write_report(args.run_dir, args.output))
    return 0
