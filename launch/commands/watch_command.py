"""``gossip watch``: the live table of a swarm, from any of its peers."""

from __future__ import annotations

import argparse
from pathlib import Path

from launch.options.arguments import seconds
from launch.user_errors import CommandError
from peers.table.columns import COLUMNS

__all__ = ["add_parser", "add_where", "legend", "run"]

_EPILOG = """\
examples:
  gossip watch runs/20260101-120000                 on the machine of the launcher
  gossip watch 10.0.0.5:41234 --key watch.json      elsewhere, with the run's watch.json
  gossip watch 127.0.0.1:41234                      a swarm of this machine, without keys

Watching does not affect the swarm, and watch.json permits nothing else. If the peer that answers ends, another one is
asked.

{columns}

exit codes: 2 an error in the command; 3 no peer answers, or none any more; 130 Ctrl-C.
"""


def legend(*, fields: bool = False) -> str:
    """Return the meaning of each column of the table, by its title, or of each field of the JSON, by its name."""
    if fields:
        told = {column.name: column.meaning for column in COLUMNS if column.in_json}
    else:
        told = {column.title: column.meaning for column in COLUMNS if column.title and column.in_json}
    width = max(map(len, told))
    lines = [f"  {name:{width}}  {meaning}" for name, meaning in told.items()]
    return "\n".join([f"{'fields of a member' if fields else 'columns'}:", *lines])


def add_where(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name a swarm."""
    add = parser.add_argument
    add("where", metavar="WHERE", help="host:port of any peer, or the directory of the run")
    add("--key", type=Path, metavar="FILE", help="the run's watch.json or join.json (default: watch.json in WHERE)")
    add("--rows", action="store_true", help="with a grid: every row of the replicas, not one of them")
    add("--timeout", type=seconds, metavar="T", default=5.0, help="how long a peer has for an answer (default: 5s)")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "watch",
        help="a live table of a swarm, from any of its peers",
        description="Show the members of a swarm and their status, repeatedly, until Ctrl-C.",
        epilog=_EPILOG.format(columns=legend()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_where(parser)
    parser.add_argument("--every", type=seconds, metavar="T", default=1.0, help="time between looks (default: 1s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Watch, and return the exit code."""
    from launch.terminal import output
    from launch.watch.invitation import WATCH, found
    from launch.watch.watching import watch

    if not args.every or not args.timeout:
        raise CommandError(f"--every and --timeout must be above 0 seconds, not {args.every:g} and {args.timeout:g}")
    return watch(found(args.where, WATCH, args.key), output(), every=args.every, timeout=args.timeout, rows=args.rows)
