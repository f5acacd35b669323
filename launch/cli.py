"""The ``gossip`` command.

A subcommand is a module of `launch.commands` with two functions, and one line in `COMMANDS`:

- ``add_parser(subparsers)`` declares it, and ends with ``parser.set_defaults(run=run)``;
- ``run(args) -> int`` does it and returns the exit code.

Every module is imported at each start, so what is slow to import is imported inside ``run``.

Exit codes: 0 done; 2 an error of the user, told in one line; 130 interrupted by Ctrl-C, 143 by SIGTERM; 141 the reader
of the output is gone, as in ``gossip topologies | head -1``. A traceback is a bug in gossip.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from launch.commands import (
    join_command,
    keygen_command,
    launch_command,
    plan_command,
    report_command,
    simulate_command,
    status_command,
    topologies_command,
    watch_command,
)
from launch.parser import Parser
from launch.user_errors import Interrupted, user_errors
from launch.versions import ShowVersions

__all__ = ["COMMANDS", "command_parser", "guarded", "main"]


class Command(Protocol):
    """A module that is a subcommand."""

    def add_parser(self, subparsers: argparse._SubParsersAction[argparse.ArgumentParser], /) -> None:
        """Declare the subcommand and its arguments."""


#: The subcommands, in the order in which the help lists them.
COMMANDS: tuple[Command, ...] = (
    launch_command,
    join_command,
    watch_command,
    status_command,
    report_command,
    topologies_command,
    simulate_command,
    plan_command,
    keygen_command,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: the process's own) and return the exit code."""
    return guarded(lambda: _run(argv))


def guarded(run: Callable[[], int]) -> int:
    """Return what ``run`` returns, or the exit code for the way in which it ended."""
    try:
        code = run()
        sys.stdout.flush()  # here, and not at exit, so that a closed pipe is noticed while it can be handled
    except Interrupted as request:
        return request.exit_code
    except KeyboardInterrupt:
        return Interrupted().exit_code
    except BrokenPipeError:
        # What is still buffered goes nowhere; otherwise the interpreter would complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except user_errors() as error:
        print(f"gossip: error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is None:
            raise
        # A file or directory that the user has named, and that cannot be used: a name too long, a full disk.
        print(f"gossip: error: {error.filename!s:.200}: {error.strerror}", file=sys.stderr)
        return 2
    return code


def command_parser() -> Parser:
    """Return the parser of the whole command line; the documents are made from it too."""
    parser = Parser(
        prog="gossip",
        description="Decentralized gossip training: no coordinator, no all-reduce.",
        epilog="'gossip COMMAND --help' explains a command.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=ShowVersions, help="show the versions of this installation and exit")
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser]
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def _run(argv: Sequence[str] | None) -> int:
    parser = command_parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as end:  # --help and --version, which have printed
        return end.code if isinstance(end.code, int) else 0
    if not hasattr(args, "run"):
        parser.print_help(sys.stderr)
        return 2
    code: int = args.run(args)
    return code


if __name__ == "__main__":
    sys.exit(main())
