"""``gossip launch``: peers from a number or a hostfile, with a topology and an algorithm by name."""

from __future__ import annotations

import argparse
from pathlib import Path

from launch.commands.arguments import AVERAGING, COLLECTIVE, fault, integer, port, positive, seconds

__all__ = ["add_parser", "run"]

_EXAMPLES = """\
examples:
  gossip launch -n 4 train.py --epochs 10
  gossip launch --hostfile hosts --topology base --algorithm sgp train.py
  gossip launch -n 4 --straggler 2=4x --fault kill:1@300 --fault restart:1@400 train.py
  gossip launch -n 8 --fault drop:5% --fault delay:20ms-80ms train.py

exit codes: 0 all peers finished (those killed by --fault aside); 1 some failed; 2 a mistake in the command;
3 none finished; 130 stopped by Ctrl-C.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "launch",
        help="start peers, here or over ssh, and watch them train",
        description="Start a training script as so many peers. Options come before the script; what follows it is "
        "the script's own. A TOML file can hold the options (--config), and options on the command line win.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_who(parser.add_argument_group("who"))
    _add_how(parser.add_argument_group("how they gossip"))
    _add_run(parser.add_argument_group("the run"))
    _add_faults(parser.add_argument_group("injected, to see what it survives (each may be given several times)"))
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="train.py, a module with -m, or any program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="the script's own arguments")
    parser.set_defaults(run=run)


def _add_who(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("-n", "--peers", type=positive, metavar="N", help="peers on this machine (default: 1 without a hostfile)")
    add("--hostfile", type=Path, metavar="FILE", help="lines 'host slots=N'; peers are started there over ssh")
    add("--include", metavar="HOSTS", help="only these of the hostfile, as in a,b or a:0,2 (slots)")
    add("--exclude", metavar="HOSTS", help="all but these of the hostfile")
    add("-m", "--module", action="store_true", default=None, help="SCRIPT is the name of a module")
    add("--device", metavar="D", help="cpu, cuda or cuda:K (default: the local rank's GPU, else the CPU)")
    add("--insecure", action="store_true", default=None, help="no encryption between machines")


def _add_how(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--topology", metavar="NAME[:k=v]", help="see 'gossip topologies' (default: what suits the algorithm)")
    add("--algorithm", metavar="NAME[:k=v]", help=f"{', '.join((*AVERAGING, *COLLECTIVE))} (default: osgp)")
    add("--preset", metavar="NAME", help="loopback, lan or wan (default: by where the peers are)")
    add("--share", type=fault("share"), metavar="P", help="shards pushed per step, as in 25%% (default: all)")
    add(
        "--compress",
        metavar="NAME",
        help="none, bf16, fp16, int8, int4, or auto: by the link; topk-pair in pairs; any codec with allreduce, choco",
    )
    add("--seed", type=integer, metavar="S", help="of random topologies, data order and faults (default: 0)")


def _add_run(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--config", type=Path, metavar="FILE", help="a TOML file with any of these options")
    add("--run-dir", type=Path, metavar="DIR", help="metrics, logs and checkpoints (default: runs/DATE-TIME)")
    add("--checkpoint-every", type=integer, metavar="K", help="save every K steps (default: never)")
    add("--tensorboard", action="store_true", default=None, help="write each step's figures for TensorBoard too")
    add("--metrics-port", type=port, metavar="P", help="figures for Prometheus at P + local rank, 0 for any free port")
    add("--metrics-bind", metavar="HOST", help="the address where they are served (default: 127.0.0.1)")
    add("--resume", action="store_true", default=None, help="go on from the checkpoints in --run-dir")
    add("--restart", type=integer, metavar="N", help="start a peer that died again, up to N times (default: 0)")
    add("--start-timeout", type=seconds, metavar="T", help="how long peers wait for each other (default: 60s)")
    add("--stop-timeout", type=seconds, metavar="T", help="how long they have for ending after Ctrl-C (default: 10s)")
    add("--quiet", action="store_true", default=None, help="leave out the peers' own output")
    add("--dry-run", action="store_true", help="check everything, print the plan, and start nothing")


def _add_faults(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--straggler", action="append", metavar="S", help="2=4x, 2=4x@100-200, 2=+50ms, random=10%%:2x-5x")
    add(
        "--fault",
        action="append",
        metavar="F",
        help="kill:1@300, restart:1@400, pause:1@100+10s, cut:'0-3|4-7@200+30s', drop:5%%, delay:20ms-80ms, "
        "duplicate:1%%, corrupt:0.1%%",
    )


def run(args: argparse.Namespace) -> int:
    """Launch and return the exit code."""
    from launch.commands.options import gathered
    from launch.swarm.launching import launch

    return launch(gathered(args), dry_run=args.dry_run)
