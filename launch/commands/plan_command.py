"""``gossip plan``: which grid suits a model and a machine, and what every split costs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossip.errors import SettingsError
from gossip.settings import ALGORITHM
from launch.options.arguments import check_plot, fault_reader, positive
from launch.user_errors import CommandError

__all__ = ["add_parser", "run"]

_KINDS = ("data", "fsdp", "tensor", "mixed", "domain", "1.5d", "1.5d-mixed")
_EXAMPLES = """\
examples:
  gossip plan -n 8 --batch 256 train.py:Net                          one machine; Net begins with a linear layer
  gossip plan --hostfile hosts --batch 256 --input 3x224x224 train.py:Net       the hosts of a launch
  gossip plan -n 8 --batch 256 --memory 8GiB --optimizer adam --input int:128 train.py:GPT    tokens, little memory
  gossip plan -n 4 --batch 64 --measure --plot plan.svg "train.py:resnet(16)"   measured here, and a picture

MODEL is a class or function of a script, or a module in it; literal arguments may follow. The script is run up to
peers.join(), and nothing is trained.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "plan",
        help="predict what each grid costs a model, and choose one",
        description="Predict bytes, messages, seconds and memory of every split of a model over processes: P_r "
        "processes hold a replica between them, and P_c replicas gossip.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("model", metavar="SCRIPT:MODEL", help="the model, as in train.py:Net")
    add("-n", type=positive, metavar="N", help="processes on one machine")
    add("--hostfile", type=Path, metavar="FILE", help="processes on the hosts of this file, as for gossip launch")
    add("--batch", type=positive, required=True, metavar="B", help="samples of a step, of all replicas together")
    add("--input", metavar="SHAPE", help="one sample: 3x224x224, or int:128 for tokens (default: the first layer's)")
    _add_machine(parser.add_argument_group("the machine"))
    _add_training(parser.add_argument_group("the training"))
    add("--layers", action="store_true", help="also show what each layer of the best split costs")
    add("--json", action="store_true", help="print JSON, with every layer of every split")
    add("--plot", type=Path, metavar="FILE", help="also write a picture of the costs over P_r, .svg or .png")
    parser.set_defaults(run=run)


def _add_machine(group: argparse._ArgumentGroup) -> None:
    add, rate, time = group.add_argument, _reader("rate"), _reader("latency")
    add("--inside", type=rate, metavar="RATE", help="of each process inside a host (default: 10Gbit)")
    add("--inside-latency", type=time, metavar="T", help="of a message inside a host (default: 50us)")
    add("--between", type=rate, metavar="RATE", help="of the link of each host (default: 1Gbit)")
    add("--latency", type=time, metavar="T", help="of a message between hosts (default: 1ms)")
    add("--flops", type=_reader("flops"), metavar="F", help="operations a second of a process (default: 100G)")
    add("--memory", type=_reader("size"), metavar="SIZE", help="of a process, as in 8GiB; rules out what needs more")
    add("--measure", action="store_true", help="measure computing and the loopback here, not --flops and --inside")
    add("--crews-across-hosts", action="store_true", help="also consider crews that are spread over hosts")


def _add_training(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--optimizer",
        choices=("sgd", "momentum", "adam"),
        default="momentum",
        help="0, 1 or 2 values for each weight (default: momentum)",
    )
    add("--algorithm", default=ALGORITHM, metavar="NAME[:k=v]", help=f"across replicas (default: {ALGORITHM})")
    add("--topology", default="", metavar="NAME[:k=v]", help="of the replicas (default: what suits the algorithm)")
    add("--share", type=fault_reader("share"), default=1.0, metavar="P", help="values sent in a step (default: all)")
    add("--compress", default="none", metavar="NAME", help="none, bf16, int8... (default: none)")
    add("--backend", choices=("gloo", "nccl"), default="gloo", help="inside crews (default: gloo)")
    add(
        "--kinds",
        type=_kinds,
        metavar="LIST",
        help="kinds inside crews: fsdp,tensor,mixed,domain (default: all); 1.5d and 1.5d-mixed are the paper's",
    )


def run(args: argparse.Namespace) -> int:
    """Plan and show; the exit code is 1 if nothing fits."""
    if args.plot is not None:
        check_plot(args.plot)
    hosts = _hosts(args)
    for option, value in (
        ("--flops", args.flops),
        ("--inside", args.inside),
        ("--inside-latency", args.inside_latency),
    ):
        if args.measure and value is not None:
            raise CommandError(f"{option} and --measure cannot be combined: --measure finds out {option[2:]} itself")
    from launch.terminal import waiting
    from peers import plan
    from peers.planner.script_models import model_of

    names = ("inside", "inside_latency", "between", "latency", "flops", "kinds")
    chosen = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    with waiting("planning"):
        found = plan(
            model_of(args.model),
            batch=args.batch,
            hosts=hosts,
            shape=args.input,
            memory=args.memory,
            optimizer=args.optimizer,
            algorithm=args.algorithm,
            topology=args.topology,
            share=args.share,
            compress=args.compress,
            backend=args.backend,
            measure=args.measure,
            spanning=args.crews_across_hosts,
            **chosen,
        )
    from launch.catalog import plan_table

    if args.json:
        plan_table.print_plan_json(found)
    else:
        plan_table.print_plan(found, layers=args.layers)
    if args.plot is not None:
        from launch.plots import plan_plot
        from launch.plots import schedule_plot as plots

        plots.save(plan_plot.figure(found.choice), args.plot)
    return int(found.choice.best is None)


def _hosts(args: argparse.Namespace) -> list[int]:
    """Return the slots of each host."""
    if (args.n is None) == (args.hostfile is None):
        raise CommandError(
            f"-n {args.n} and --hostfile {args.hostfile}: give one of them, so that the processes are known"
        )
    if args.hostfile is None:
        return [args.n]
    from launch.swarm.hostfile import read_hostfile

    return [host.slots for host in read_hostfile(args.hostfile)]


def _reader(kind: str) -> Callable[[str], float]:
    """Return the reader of a unit, ``parse_KIND`` of `gossip.costs.units`."""

    def read(text: str) -> float:
        # Not at the start of every command: the package needs graphs.
        from gossip.costs import units

        parse: Any = getattr(units, f"parse_{kind}")
        try:
            return float(parse(text))
        except SettingsError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _kinds(text: str) -> tuple[str, ...]:
    """Read a list of kinds."""
    kinds = tuple(text.split(","))
    wrong = [kind for kind in kinds if kind not in _KINDS]
    if wrong:
        raise argparse.ArgumentTypeError(f"kinds are {', '.join(_KINDS)}, not {wrong[0]!r}")
    return kinds
