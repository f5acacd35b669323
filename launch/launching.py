"""From options to a running swarm: everything is checked first, then everything is started."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import topologies
from gossip import policies, presets
from gossip.faults import Faults, parse_faults, parse_stragglers
from launch.controller import Controller
from launch.display import Display
from launch.errors import CommandError
from launch.host import Emit, Host, LocalHost
from launch.hostfile import LOCAL, HostLine, read_hostfile, selected
from launch.interrupts import interruptible
from launch.options import Options
from launch.plan import Plan, Seat, program
from launch.terminal import output
from launch.toml import to_toml

__all__ = ["launch", "planned"]


def launch(options: Options, *, dry_run: bool = False) -> int:
    """Check, start and watch; return the exit code."""
    plan, faults = planned(options)
    console = output()
    if dry_run:
        for line in plan.lines():
            console.print(line, soft_wrap=True)
        return 0
    if plan.spread:
        from launch.ssh import addressed

        known = addressed(list(dict.fromkeys(seat.host for seat in plan.seats)))
        plan = replace(plan, seats=tuple(replace(seat, host=known[seat.host]) for seat in plan.seats))
    display = Display(console, plan.world_size, quiet=options.quiet)
    with interruptible():
        controller = Controller(plan, lambda emit: _hosts(plan, emit), faults, display)
        _write_config(plan, options)
        with display:
            code = controller.run()
    console.print(f"gossip: {_verdict(controller.results())}; see {plan.run_dir}, or gossip report {plan.run_dir}")
    return code


def planned(options: Options) -> tuple[Plan, Faults]:
    """Return the plan for the options, or raise an error that says what to change."""
    seats = _seats(_hosts_of(options))
    n = len(seats)
    schedule = topologies.parse(options.topology, n, seed=options.seed)
    policies.parse(options.algorithm).check(schedule)
    presets.preset(options.preset or "lan")
    faults = parse_faults(options.fault, n, seed=options.seed)
    parse_stragglers(options.straggler, n)
    if options.tensorboard and any(seat.host.is_local for seat in seats):
        from peers.tensorboard import check_tensorboard  # here, for it imports torch

        check_tensorboard()
    run_dir = Path(options.run_dir or time.strftime("runs/%Y%m%d-%H%M%S"))
    if options.resume and not options.run_dir:
        raise CommandError("--resume needs --run-dir: which run is to go on?")
    if options.resume and not any(run_dir.glob("rank-*")) and all(seat.host.is_local for seat in seats):
        raise CommandError(f"--resume: there is no run in {run_dir}")
    if not options.module and options.script.endswith(".py") and not Path(options.script).is_file():
        raise CommandError(f"there is no script {options.script}")
    common: dict[str, Any] = {
        "run": run_dir.name[:64],
        "topology": options.topology,
        "algorithm": options.algorithm,
        "preset": options.preset,
        "seed": options.seed,
        "device": options.device,
        "share": options.share,
        "checkpoint_every": options.checkpoint_every,
        "tensorboard": options.tensorboard,
        "resume": options.resume,
        "start_timeout": options.start_timeout,
        "stragglers": list(options.straggler),
        "faults": list(options.fault),
    }
    plan = Plan(
        program(options.script, options.arguments, options.module),
        seats,
        common,
        run_dir.absolute(),
        restarts=options.restart,
        spread=not all(seat.host.is_local for seat in seats),
        insecure=options.insecure,
    )
    return plan, faults


def _hosts_of(options: Options) -> list[HostLine]:
    if not options.hostfile:
        if options.include or options.exclude:
            raise CommandError("--include and --exclude choose from a --hostfile")
        return [HostLine(LOCAL.host, options.peers or 1)]
    if options.peers:
        raise CommandError("say -n N for peers on this machine, or --hostfile for others, not both")
    return selected(read_hostfile(Path(options.hostfile)), options.include, options.exclude)


def _seats(hosts: list[HostLine]) -> tuple[Seat, ...]:
    places = [(host, local_rank) for host in hosts for local_rank in host.local_ranks]
    return tuple(Seat(rank, local_rank, host) for rank, (host, local_rank) in enumerate(places))


def _hosts(plan: Plan, emit: Emit) -> Mapping[int, Host]:
    """Return the host of each rank; other machines are connected to, and asked whether they can take part."""
    lines = list(dict.fromkeys(seat.host for seat in plan.seats))
    hosts: dict[HostLine, Host] = {line: LocalHost(emit, line.host) for line in lines if line.is_local}
    if plan.spread:
        from launch.remote import connected

        seconds = plan.common["start_timeout"]
        away = [line for line in lines if not line.is_local]
        hosts |= connected(emit, away, plan.command, plan.run_dir, seconds=seconds)
    return {seat.rank: hosts[seat.host] for seat in plan.seats}


def _write_config(plan: Plan, options: Options) -> None:
    try:
        plan.run_dir.mkdir(parents=True, exist_ok=True)
        (plan.run_dir / "config.toml").write_text(
            to_toml(asdict(options), "how this run was launched; gossip launch --config takes it again"), "utf-8"
        )
    except OSError as error:
        raise CommandError(f"cannot write to the run directory {plan.run_dir}: {error.strerror or error}") from error


def _verdict(results: Mapping[int, int | None]) -> str:
    good = sum(code == 0 for code in results.values())
    return f"{good} of {len(results)} peers finished"
