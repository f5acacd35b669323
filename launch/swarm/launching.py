"""From options to a running swarm: all checks come first, then all peers are started."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

import topologies
from gossip import policies, presets
from gossip.collective.making import check_settings
from gossip.exchange.coding import check_codec, gamma_notice
from gossip.faults import Faults, parse_faults, parse_stragglers
from gossip.grids import Grid
from gossip.shares import check_share
from launch.options.options import LaunchOptions
from launch.options.toml import to_toml
from launch.swarm.auto_algorithm import chosen_line, decided
from launch.swarm.auto_grid import is_auto, with_grid
from launch.swarm.controller import Controller
from launch.swarm.grid_seats import fitted_grid
from launch.swarm.host import Emit, Host, LocalHost
from launch.swarm.hostfile import LOCAL, HostLine, read_hostfile, selected
from launch.swarm.interrupts import interruptible
from launch.swarm.launch_plan import LaunchPlan, PeerSeat, check_program, program
from launch.swarm.one_launcher import check_one_launcher
from launch.swarm.ports import check_ports
from launch.swarm.run_place import claimed, used
from launch.swarm.slurm_allocation import allocation, requeued
from launch.terminal import output, warn
from launch.user_errors import CommandError
from launch.watch.display import Display
from peers.reporting.tensorboard import check_tensorboard

__all__ = ["launch", "planned", "verdict"]

#: What the last line says of peers that failed with certain errors.
_ENDINGS = {"AgreementError": "ended without agreement", "DivergenceError": "diverged"}

#: Peers of one launch. A larger number is mistyped, and a list of them would take all memory.
_MOST_PEERS = 100_000


def launch(options: LaunchOptions) -> int:
    """Check, start and watch; return the exit code."""
    options = requeued(options)
    if not options.each_task:
        check_one_launcher(program(options.script, options.arguments, options.module))
    options, why = with_grid(options, _seats(_hosts_of(options)))
    plan, faults = planned(options, why)
    warn(plan.warning)
    console = output()
    if why:
        console.print(f"gossip: {why}", soft_wrap=True, markup=False, highlight=False)
    if plan.chosen is not None:
        console.print(f"gossip: {chosen_line(plan.chosen)}", soft_wrap=True, markup=False, highlight=False)
    if options.dry_run:
        for line in plan.lines():
            console.print(line, soft_wrap=True)
        return 0
    while True:
        with claimed(plan.run_dir) as free:
            if free and (options.resume or not used(plan.run_dir)):
                return _run(plan, faults, options, console)
            if options.run_dir:
                raise CommandError(
                    f"another gossip launch uses {plan.run_dir}: choose another --run-dir, or wait until it has ended"
                )
        plan, faults = planned(options, why)  # another launch of the same second was faster


def _run(plan: LaunchPlan, faults: Faults, options: LaunchOptions, console: Console) -> int:
    if plan.spread:
        from launch.swarm.ssh import addressed

        known = addressed(list(dict.fromkeys(seat.host for seat in plan.seats)))
        plan = replace(plan, seats=tuple(replace(seat, host=known[seat.host]) for seat in plan.seats))
    display = Display(console, range(plan.world_size), quiet=options.quiet)
    with interruptible():
        controller = Controller(
            plan,
            lambda emit: _hosts(plan, emit),
            faults,
            display,
            overridden=lambda settings: _write_config(plan, options, settings),
        )
        _write_config(plan, options)
        with display:
            code = controller.run()
    console.print(f"gossip: {verdict(plan, controller)}; see {plan.run_dir}, or gossip report {plan.run_dir}")
    return code


def planned(options: LaunchOptions, why_grid: str = "") -> tuple[LaunchPlan, Faults]:
    """Return the plan for the options, or raise an error that says what to change.

    Args:
        options: of the launch, with a grid that is named.
        why_grid: how the planner has chosen it.
    """
    seats = _seats(_hosts_of(options))
    n = len(seats)
    grid = fitted_grid(options.grid, seats, across_hosts=options.crews_across_hosts)
    options, chosen = decided(options, grid.replicas, all_here=all(seat.host.is_local for seat in seats))
    policy = policies.parse(options.algorithm)
    if policy.collective and grid.rows > 1:
        raise CommandError(
            f"--algorithm {options.algorithm} exchanges with all processes at once, and replicas of {grid.rows} "
            f"processes (--grid {grid}) only gossip, row by row: use sgp, osgp or another algorithm that gossips"
        )
    topology = options.topology or policy.default_topology
    schedule = topologies.parse(topology, grid.replicas, seed=options.seed)
    policy.check(schedule)
    check_share(options.share)
    check_codec(options.compress, policy)
    check_settings(policy, options.share, options.compress)
    presets.preset(options.preset or "lan")
    named = grid if options.grid else None
    faults = parse_faults(options.fault, n, options.seed, named)
    stragglers = parse_stragglers(options.straggler, n, named)
    if options.tensorboard and any(seat.host.is_local for seat in seats):
        check_tensorboard()
    if options.metrics_port >= 0:
        check_ports(options.metrics_bind, options.metrics_port, seats)
    run_dir = _run_dir(options, all_here=all(seat.host.is_local for seat in seats))
    check_program(options.script, options.module, here=any(seat.host.is_local for seat in seats))
    warn(options.swallowed(options.arguments, options.script))  # not of a script that does not exist
    for text, straggler in zip(options.straggler, stragglers, strict=True):
        if not any(straggler.slows(rank, options.seed) for rank in range(n)):
            warn(f"--straggler {text}: none of the {n} ranks is drawn with --seed {options.seed}, so nobody is slow")
    common: dict[str, Any] = {"run": run_dir.name[:64], **options.told(), "topology": topology}
    if options.metrics_port < 0:
        del common["metrics_port"], common["metrics_bind"]
    plan = LaunchPlan(
        program(options.script, options.arguments, options.module),
        seats,
        common,
        run_dir.absolute(),
        restarts=options.restart,
        spread=not all(seat.host.is_local for seat in seats),
        insecure=options.insecure,
        grid=grid,
        chosen=chosen,
        why_grid=why_grid,
        warning=policy.notice(schedule) or gamma_notice(options.compress, policy),
    )
    return plan, faults


def _run_dir(options: LaunchOptions, *, all_here: bool) -> Path:
    """Return the directory of the run: a new one, or that of the run to continue."""
    if not options.run_dir:
        if options.resume:
            raise CommandError("--resume needs --run-dir: name the run to continue")
        return _unused(time.strftime("runs/%Y%m%d-%H%M%S"))
    run_dir = Path(options.run_dir)
    if options.resume:
        if all_here and not used(run_dir):
            raise CommandError(f"--resume: {run_dir} contains no run; check --run-dir, or leave --resume out")
    elif used(run_dir):
        # Records are added to by each life of a peer: two runs in one place would look like one.
        raise CommandError(f"{run_dir} already contains a run: continue it with --resume, or choose another --run-dir")
    return run_dir


def _unused(name: str) -> Path:
    """Return the directory of that name, or one with a number behind it: two launches may be of the same second."""
    numbered = (Path(f"{name}-{number}" if number > 1 else name) for number in itertools.count(1))
    return next(path for path in numbered if not path.exists())


def _hosts_of(options: LaunchOptions) -> list[HostLine]:
    if not options.hostfile:
        allocated = [] if options.peers or options.each_task else allocation()
        if allocated:
            return selected(allocated, options.include, options.exclude)
        if options.include or options.exclude:
            choice = f"--include {options.include}" if options.include else f"--exclude {options.exclude}"
            raise CommandError(f"{choice} selects from a hostfile: name it with --hostfile")
        if is_auto(options.grid) and not options.peers:
            raise CommandError(
                f"--grid {options.grid} shares processes out, and nothing says how many there are: give -n or "
                "--hostfile"
            )
        processes = Grid.parse(options.grid).size if options.grid and not options.peers else 1
        return [HostLine(LOCAL.host, options.peers or processes)]
    if options.peers:
        raise CommandError(
            f"-n {options.peers} starts peers here, and --hostfile {options.hostfile} elsewhere: give one, not both"
        )
    return selected(read_hostfile(Path(options.hostfile)), options.include, options.exclude)


def _seats(hosts: list[HostLine]) -> tuple[PeerSeat, ...]:
    total = sum(host.slots for host in hosts)
    if total > _MOST_PEERS:
        raise CommandError(f"{total} peers are more than one launcher starts: ask for at most {_MOST_PEERS}")
    places = [(host, local_rank) for host in hosts for local_rank in host.local_ranks]
    return tuple(PeerSeat(rank, local_rank, host) for rank, (host, local_rank) in enumerate(places))


def _hosts(plan: LaunchPlan, emit: Emit) -> Mapping[int, Host]:
    """Return the host of each rank; other machines are connected to, and asked whether they can take part."""
    lines = list(dict.fromkeys(seat.host for seat in plan.seats))
    hosts: dict[HostLine, Host] = {line: LocalHost(emit, line.host) for line in lines if line.is_local}
    if plan.spread:
        from launch.swarm.remote import connected

        seconds = plan.common["start_timeout"]
        away = [line for line in lines if not line.is_local]
        hosts |= connected(emit, away, plan.command, plan.run_dir, seconds=seconds, resume=plan.common["resume"])
    return {seat.rank: hosts[seat.host] for seat in plan.seats}


def _write_config(plan: LaunchPlan, options: LaunchOptions, overrides: Mapping[str, Any] | None = None) -> None:
    """Record how the run was launched; what its script overrides is recorded as it really is."""
    replicas = plan.world_size if plan.grid is None else plan.grid.replicas
    options, _ = decided(options, replicas, all_here=not plan.spread)
    told = options.told()
    real = {name: value for name, value in (overrides or {}).items() if name in told}
    comment = "how this run was launched; gossip launch --config takes it again"
    if plan.why_grid:
        comment += f"\n{plan.why_grid}"
    if plan.chosen is not None:
        comment += f"\n{chosen_line(plan.chosen)}"
    for name in real:
        comment += f"\nthe script overrides {name}, which the command line has as {told[name]!r}"
    if "algorithm" in real:
        real.setdefault("topology", plan.common["topology"])  # that of the launch, not the default of the algorithm
    # Without the run directory: a launch that reads this file is another run, in another directory.
    options = replace(options.overridden(real), run_dir="", resume=False)
    try:
        (plan.run_dir / "config.toml").write_text(to_toml(options.for_file(), comment), "utf-8")
    except OSError as error:
        raise CommandError(
            f"cannot write to the run directory {plan.run_dir}: {error.strerror or error}; choose another --run-dir"
        ) from error


def verdict(plan: LaunchPlan, controller: Controller) -> str:
    """Return what came of a launch, in a sentence."""
    results = controller.results()
    good = sum(one == 0 for one in results.values())
    if controller.interrupted and good < len(results):
        saved = any(plan.run_dir.glob("rank-*/checkpoints/step-*"))
        return "stopped" + (f"; continue from its checkpoints with --resume --run-dir {plan.run_dir}" if saved else "")
    said = f"{good} of {len(results)} peers finished"
    for error, what in _ENDINGS.items():
        ranks = [rank for rank, ending in controller.endings().items() if ending.startswith(f"failed: {error}:")]
        if ranks:
            said += f"; {what}: rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    return said
