"""``gossip join``: one more peer enters a swarm that runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from launch.commands.arguments import integer, seconds

__all__ = ["add_parser", "run"]

_EXAMPLES = """\
examples:
  gossip join runs/20260101-120000 train.py            on the machine of the launcher
  gossip join 10.0.0.5:41234 --key join.json train.py  elsewhere, with the run's join.json
  gossip join 127.0.0.1:41234 train.py                 a swarm of this machine, without keys

Topology, algorithm, seed and the name of the run are the swarm's own. The model comes from the peers, which go on
training meanwhile.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "join",
        help="let one more peer enter a swarm that runs",
        description="Start a training script as one more peer of a swarm, through any of its peers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("where", metavar="WHERE", help="host:port of any peer, or the directory of the run")
    add("--key", type=Path, metavar="FILE", help="the run's join.json (default: the one in the run's directory)")
    add("--rank", type=integer, metavar="R", help="its rank (default: that of one that left, else a new one)")
    add("--bind", metavar="HOST", help="where it listens (default: the address from which WHERE is reached)")
    add("--device", metavar="D", default="auto", help="cpu, cuda or cuda:K (default: a GPU if there is one)")
    add("--run-dir", type=Path, metavar="DIR", help="metrics, logs and checkpoints (default: WHERE, or runs/DATE-TIME)")
    add("--checkpoint-every", type=integer, metavar="K", default=0, help="save every K steps (default: never)")
    add("--restart", type=integer, metavar="N", default=0, help="start it again if it dies, up to N times (default: 0)")
    add("--start-timeout", type=seconds, metavar="T", default=60.0, help="how long to try to get in (default: 60s)")
    add("--stop-timeout", type=seconds, metavar="T", default=10.0, help="time for ending after Ctrl-C (default: 10s)")
    add("-m", "--module", action="store_true", help="SCRIPT is the name of a module")
    add("--quiet", action="store_true", help="leave out the peer's own output")
    parser.add_argument("script", metavar="SCRIPT", help="train.py, a module with -m, or any program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="the script's own arguments")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Join and return the exit code."""
    from launch.swarm.newcomer import join

    return join(args)
