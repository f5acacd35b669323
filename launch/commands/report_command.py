"""``gossip report``: a page about a run, while it goes on or when it is over."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "report",
        help="make a web page about a run",
        description="Write one web page, with nothing outside of it, about a run: how it was launched, what became of "
        "each rank, curves of loss, speed, waiting and traffic, and what happened when.",
        allow_abbrev=False,
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="the run's directory, finished or not")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to (default: RUN/report.html)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the report and say where it is."""
    from launch.report.report import write_report

    print(write_report(args.run_dir, args.output))
    return 0
