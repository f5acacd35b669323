"""``gossip topologies``: compare all topologies, or show one in detail."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from launch.options.arguments import check_plot, integer, positive
from launch.user_errors import CommandError

if TYPE_CHECKING:
    from topologies import Schedule

__all__ = ["add_parser", "run"]

_PEERS = 32
_EXAMPLES = """\
examples:
  gossip topologies -n 33                        compare all of them for 33 peers
  gossip topologies base:k=2 -n 33               one of them, with a parameter, step by step
  gossip topologies base -n 33 --plot base.svg   a picture of its steps
  gossip topologies @mine.json                   your own graph, checked and measured
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "topologies",
        help="compare the topologies, or show one",
        description="Without NAME: all topologies and how fast they mix. With NAME: one of them in detail.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME[:k=v,...]",
        help="a topology and its parameters, or @FILE for your own graph (.graphml, .json or .edges)",
    )
    parser.add_argument(
        "-n", type=positive, metavar="N", help=f"how many peers (default: {_PEERS}; a file has its own number)"
    )
    parser.add_argument("--seed", type=integer, default=0, metavar="S", help="for the random ones (default: 0)")
    parser.add_argument(
        "--steps", type=positive, metavar="K", help="with NAME: how many steps to show (default: the period)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with every figure and every edge")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also write a picture, .svg or .png: the steps of NAME, or without NAME how fast all topologies mix",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show all topologies, or one."""
    if args.plot is not None:
        check_plot(args.plot)
    if args.name is None:
        return _run_all(args)
    return _run_one(args)


def _run_all(args: argparse.Namespace) -> int:
    from launch.catalog import topologies_table as table

    if args.steps is not None:
        raise CommandError(
            f"--steps {args.steps} needs the NAME of a topology: gossip topologies NAME --steps {args.steps}"
        )
    rows = table.measure(args.n or _PEERS, args.seed)
    if args.json:
        table.print_json(rows)
    else:
        table.print_table(rows, args.seed)
    if args.plot is not None:
        from launch.plots import curves as plot_curves
        from launch.plots import schedule_plot as plots

        plots.save(plot_curves.figure(rows), args.plot)
    return 0


def _run_one(args: argparse.Namespace) -> int:
    from launch.catalog import topology_detail as detail

    schedule = _schedule(args.name, args.n, args.seed)
    if args.json:
        detail.print_json(schedule, args.steps)
    else:
        detail.print_text(schedule, args.steps)
    if args.plot is not None:
        from launch.plots import schedule_plot as plots

        plots.save(plots.figure(schedule, args.steps), args.plot)
    return 0


def _schedule(name: str, n: int | None, seed: int) -> Schedule:
    import topologies

    if name.startswith("@") and n is None:
        return topologies.from_file(name[1:])
    return topologies.parse(name, n or _PEERS, seed=seed)
