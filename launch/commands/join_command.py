"""``gossip join``: add one peer to a running swarm."""

from __future__ import annotations

import argparse

from launch.options.options import JoinOptions

__all__ = ["add_parser", "run"]

_EXAMPLES = """\
examples:
  gossip join runs/20260101-120000 train.py            on the machine of the launcher
  gossip join 10.0.0.5:41234 --key join.json train.py  elsewhere, with the run's join.json
  gossip join 127.0.0.1:41234 train.py                 a swarm of this machine, without keys

The swarm decides the topology, algorithm, seed and the name of the run. The new peer gets the model from the other
peers, which continue training meanwhile.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "join",
        help="add one peer to a running swarm",
        description="Start a training script as one more peer of a running swarm, through any of its peers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    JoinOptions.add_to(parser)
    JoinOptions.add_positional(parser, "where", "WHERE")
    JoinOptions.add_positional(parser, "script", "SCRIPT")
    JoinOptions.add_positional(parser, "arguments", "ARGS", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Join and return the exit code."""
    from launch.swarm.newcomer import join

    options = JoinOptions.gathered(args)
    return join(options)
