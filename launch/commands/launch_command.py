"""``gossip launch``: start peers on this machine or on the hosts of a hostfile."""

from __future__ import annotations

import argparse
from pathlib import Path

from launch.options.options import LaunchOptions
from launch.user_errors import CommandError

__all__ = ["add_parser", "run"]

_EXAMPLES = """\
examples:
  gossip launch -n 4 train.py --epochs 10
  gossip launch --hostfile hosts --topology base --algorithm sgp train.py
  gossip launch -n 4 --straggler 2=4x --fault kill:1@300 --fault restart:1@400 train.py
  gossip launch -n 8 --fault drop:5% --fault delay:20ms-80ms train.py

exit codes: 0 all peers finished (those killed by --fault aside); 1 some failed; 2 an error in the command;
3 none finished; 130 stopped by Ctrl-C, 143 by SIGTERM. A peer fails if the peers do not agree in the end, or if
its training diverged.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "launch",
        help="start peers, here or over ssh, and watch them train",
        description="Start a training script as several peers. Options come before the script; arguments after it are "
        "passed to the script. A TOML file can hold the options (--config); the command line overrides it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    LaunchOptions.add_to(parser)
    LaunchOptions.add_positional(parser, "script", "SCRIPT", nargs="?")
    LaunchOptions.add_positional(parser, "arguments", "ARGS", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Launch and return the exit code."""
    from launch.swarm.launching import launch

    options = LaunchOptions.gathered(args, None if args.config is None else Path(args.config))
    if not options.script:
        raise CommandError("no script given: name it after the options, or as script in the --config file")
    return launch(options)
