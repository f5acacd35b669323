"""``gossip simulate``: the protocol itself, in virtual time, with losses and faults."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from gossip.settings import ALGORITHM
from launch.options.arguments import AVERAGING, check_plot, fault_reader, integer, positive, seconds

if TYPE_CHECKING:
    from gossip.settings import Settings
    from gossip.simulation import Result, Scenario

__all__ = ["add_parser", "run"]

_EXAMPLES = """\
moments and spans are in steps, or in time: 100, 2.5s, 300ms. A fault of one peer counts the steps of that peer.

examples:
  gossip simulate --peers 1000 --topology one-peer-exponential --loss 10%
  gossip simulate --peers 16 --straggler 2=10x --shards 4 --share 25% --delay 100ms-400ms --loss 10%
  gossip simulate --peers 64 --kill 3@20 --restart 3@50 --join 64@40 --plot run.svg
  gossip simulate --peers 64 --topology ring --cut '0-31|32-63@2+50' --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "simulate",
        help="run the protocol in virtual time, with losses, stragglers, deaths and cuts",
        description="Every peer starts with random numbers, and the peers average them with the protocol and the codec "
        "that train models. After every event the mass of the whole swarm is checked.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--peers", type=positive, default=16, metavar="N", help="number of peers (default: 16)")
    add("--steps", type=positive, default=100, metavar="K", help="steps of each peer (default: 100)")
    add(
        "--topology",
        default="",
        metavar="NAME[:k=v]",
        help="see 'gossip topologies' (default: what suits the algorithm)",
    )
    add("--algorithm", default=ALGORITHM, metavar="NAME[:k=v]", help=f"{', '.join(AVERAGING)} (default: {ALGORITHM})")
    add("--seed", type=integer, default=0, metavar="S", help="same seed, same run (default: 0)")
    add("--size", type=positive, default=8, metavar="M", help="numbers that each peer holds (default: 8)")
    add("--shards", type=positive, default=1, metavar="K", help="number of shards (default: 1)")
    add(
        "--share",
        type=fault_reader("share"),
        default=1.0,
        metavar="P",
        help="shards pushed per step, as in 25%% (default: all)",
    )
    add("--weight-floor", type=float, metavar="W", help="least weight a peer keeps (default: 0.3; 0: pure push-sum)")
    add("--compress", default="none", metavar="NAME", help="none, bf16, fp16, int8, topk-pair, auto... (default: none)")
    add("--weight-cap", type=float, metavar="W", help="most weight a peer accepts (default: 3)")
    _add_network(parser.add_argument_group("the network"))
    _add_faults(parser.add_argument_group("faults (each may be given several times)"))
    add("--json", action="store_true", help="print JSON")
    add("--plot", type=Path, metavar="FILE", help="also write a picture of the disagreement over time, .svg or .png")
    parser.set_defaults(run=run)


def _add_network(group: argparse._ArgumentGroup) -> None:
    add, share = group.add_argument, fault_reader("share")
    add("--step-time", type=seconds, default=0.1, metavar="T", help="duration of a step (default: 100ms)")
    add("--loss", type=share, default=0.0, metavar="P", help="messages lost, as in 10%%")
    add("--duplicate", type=share, default=0.0, metavar="P", help="messages that arrive twice")
    add("--corrupt", type=share, default=0.0, metavar="P", help="messages with a flipped bit")
    add("--delay", type=fault_reader("delay"), default=(0.001, 0.002), metavar="T[-T]", help="as in 5ms-50ms")
    add(
        "--bandwidth",
        type=_megabits,
        metavar="MBIT",
        help="of each directed link, as in 50 or 50Mbit (default: no limit)",
    )
    add(
        "--watch",
        metavar="PRESET",
        help="peers detect failures and joins themselves, with the settings for loopback, lan or wan",
    )
    add(
        "--detect",
        type=seconds,
        default=0.5,
        metavar="T",
        help="without --watch, the time until all peers know of a failure or a join (default: 0.5s)",
    )


def _add_faults(group: argparse._ArgumentGroup) -> None:
    def add(name: str, parse: object, metavar: str, help: str) -> None:  # noqa: A002
        group.add_argument(name, type=parse, action="append", default=[], metavar=metavar, help=help)  # type: ignore[arg-type]

    incident = fault_reader("incident")
    add(
        "--straggler",
        fault_reader("straggler"),
        "SPEC",
        "2=4x, 2=4x@20-50, 2=+50ms or random=10%%:2x-5x (each by chance)",
    )
    add("--kill", incident, "RANK@WHEN", "a peer dies")
    add("--restart", incident, "RANK@WHEN", "a killed peer restarts")
    add("--join", incident, "RANK@WHEN", "a new peer joins")
    add("--leave", incident, "RANK@WHEN", "a peer leaves, and hands over its mass")
    add("--pause", fault_reader("pause"), "RANK@WHEN+SPAN", "a peer pauses")
    add("--cut", fault_reader("cut"), "A|B@WHEN+SPAN", "two groups cannot reach each other, as in 0-3|4-7@20+50")


def run(args: argparse.Namespace) -> int:
    """Simulate and report."""
    if args.plot is not None:
        check_plot(args.plot)
    import topologies
    from gossip import policies
    from gossip.exchange.coding import gamma_notice
    from gossip.simulation import simulate
    from launch.terminal import measured, warn

    scenario = _scenario(args)
    with measured("simulating") as progress:
        # Each core's own checks double the time; the books of the whole swarm are always checked.
        result = simulate(scenario, check_every_event=False, progress=progress)
    schedule = topologies.parse(scenario.topology, scenario.peers, seed=scenario.seed)
    policy = policies.parse(scenario.algorithm)
    # Not before: a mistake is told in one line.
    warn(policy.notice(schedule) or gamma_notice(scenario.settings.compress, policy))
    if args.json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        _print(result)
    if args.plot is not None:
        from launch.plots import schedule_plot as plots
        from launch.plots import simulation_plot as plot_simulation

        plots.save(plot_simulation.figure(result), args.plot)
    return int(result.diverged)


def _scenario(args: argparse.Namespace) -> Scenario:
    from gossip import policies
    from gossip.membership import membership_preset
    from gossip.simulation import Scenario

    return Scenario(
        peers=args.peers,
        steps=args.steps,
        topology=args.topology or policies.parse(args.algorithm).default_topology,
        algorithm=args.algorithm,
        seed=args.seed,
        size=args.size,
        shards=args.shards,
        step_seconds=args.step_time,
        loss=args.loss,
        duplicate=args.duplicate,
        corrupt=args.corrupt,
        delay=args.delay,
        bandwidth=args.bandwidth,
        detect=args.detect,
        watch=None if args.watch is None else membership_preset(args.watch),
        stragglers=tuple(args.straggler),
        kills=tuple(args.kill),
        restarts=tuple(args.restart),
        joins=tuple(args.join),
        leaves=tuple(args.leave),
        pauses=tuple(args.pause),
        cuts=tuple(args.cut),
        settings=_settings(args),
    )


def _settings(args: argparse.Namespace) -> Settings:
    from gossip.settings import Settings

    given = {"weight_floor": args.weight_floor, "weight_cap": args.weight_cap}
    return Settings(
        run="simulation",
        share=args.share,
        compress=args.compress,
        **{key: value for key, value in given.items() if value is not None},
    )


def _print(result: Result) -> None:
    scenario = result.scenario
    steps = result.steps_per_peer
    lost = f", {result.weight_written_off:.6g} written off with dead peers" if result.weight_written_off else ""
    made = f", {result.weight_minted:.6g} minted for peers that joined or restarted" if result.weight_minted else ""
    print(f"{scenario.peers} peers, {scenario.algorithm} on {scenario.topology}, seed {scenario.seed}")
    print(f"  steps per peer   {steps['min']:.0f} min, {steps['median']:.0f} median, {steps['max']:.0f} max")
    if result.disagreement == result.disagreement:  # not NaN: some peer is alive
        print(f"  disagreement     {result.disagreement:.3g} of the first spread; bias of the mean {result.bias:.3g}")
    if result.diverged:
        print("  diverged         the peers ended farther apart than they began")
    print(f"  weight           {result.weight_total:.6g} in all{lost}{made}")
    if steps["max"] > 50:
        print(
            f"                   {result.weight_min:.3g} to {result.weight_max:.3g} per peer after the first 50 steps"
        )
    print(f"  mass error       {result.mass_error:.2g} relative, at worst, after {result.events} events")
    if scenario.watch is not None:
        print(
            f"  views            {'all peers agree on the members' if result.agreed else 'peers differ on the members'}"
        )
    print(f"  traffic          {result.messages} messages, {result.bytes / 1e6:.3g} MB; {result.rejected} rejected")
    print(f"  time             {result.virtual_seconds:.3g} s virtual, {result.wall_seconds:.3g} s real")


def _megabits(text: str) -> float:
    """Read Mbit/s as bytes per second."""
    try:
        value = float(text.lower().removesuffix("mbit")) * 1e6 / 8
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be megabits per second, such as 50, not {text!r}")
    return value
