"""``gossip status``: how a swarm does, once, for people or for scripts."""

from __future__ import annotations

import argparse

from launch.commands.watch_command import add_where, legend
from launch.user_errors import CommandError

__all__ = ["add_parser", "run"]

_EPILOG = """\
examples:
  gossip status runs/20260101-120000
  gossip status 10.0.0.5:41234 --key watch.json --json

{fields}

exit codes: 0 all members are well, or have left; 1 somebody is suspect or dead; 2 a mistake in the command;
3 nobody answers.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "status",
        help="how a swarm does, once; as JSON for scripts",
        description="Show who is in a swarm and how each one does.",
        epilog=_EPILOG.format(fields=legend(fields=True)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_where(parser)
    parser.add_argument("--json", action="store_true", help="as JSON; the fields are listed below")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look once, and return the exit code."""
    from launch.swarm.invitation import WATCH, found
    from launch.terminal import output
    from launch.watch.watching import show

    if not args.timeout:
        raise CommandError("--timeout is above 0")
    return show(found(args.where, WATCH, args.key), output(), as_json=args.json, timeout=args.timeout)
