"""``gossip status``: the status of a swarm, once, for people or for scripts."""

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

exit codes: 0 all members are alive, slow, or have left; 1 some are suspect or dead; 2 an error in the command;
3 no peer answers.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "status",
        help="the status of a swarm, once; as JSON for scripts",
        description="Show the members of a swarm and their status.",
        epilog=_EPILOG.format(fields=legend(fields=True)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_where(parser)
    parser.add_argument("--json", action="store_true", help="as JSON, with --rows a list; the fields are listed below")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look once, and return the exit code."""
    from launch.terminal import output
    from launch.watch.invitation import WATCH, found
    from launch.watch.watching import show

    if not args.timeout:
        raise CommandError(f"--timeout must be above 0 seconds, not {args.timeout:g}")
    invitation = found(args.where, WATCH, args.key)
    return show(invitation, output(), as_json=args.json, timeout=args.timeout, rows=args.rows)
