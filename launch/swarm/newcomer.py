"""From an invitation to a new peer of a running swarm: ask for the swarm's settings, then start a peer with them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console

from gossip.endpoint import Endpoint
from gossip.faults import Faults
from gossip.grids import row_of_run
from gossip.membership.table import MEMBERS_LIMIT
from gossip.net.routes import route_to
from gossip.net.zmq_transport import new_keys
from gossip.version import __version__
from launch.options.options import JoinOptions
from launch.swarm.controller import Controller
from launch.swarm.host import LocalHost
from launch.swarm.hostfile import LOCAL
from launch.swarm.interrupts import interruptible
from launch.swarm.launch_plan import LaunchPlan, PeerSeat, check_program, program
from launch.terminal import output, warn
from launch.user_errors import CommandError
from launch.watch.display import Display
from launch.watch.invitation import JOIN, Invitation, found
from launch.watch.lookout import Lookout
from peers.table.lives import LIVES_APART, drawn_life

__all__ = ["join"]

#: How often a newcomer asks for a rank, if others are faster.
_ATTEMPTS = 10


def join(options: JoinOptions) -> int:
    """Start one more peer and watch it; return the exit code."""
    check_program(options.script, options.module, here=True)
    warn(options.swallowed(options.arguments, options.script))
    invitation = found(options.where, JOIN, Path(options.key) if options.key else None)
    console = output()
    for _ in range(_ATTEMPTS):
        plan, place = _asked(options, invitation)
        rank = plan.seats[0].rank
        console.print(f"gossip: joining {plan.common['run']} as rank {rank}, through {place}", soft_wrap=True)
        controller, code = _run(plan, console, quiet=options.quiet)
        if not controller.rank_taken or options.rank is not None:
            return code
        console.print(f"gossip: another newcomer took rank {rank} at the same time; trying another rank")
    raise CommandError(f"other newcomers were faster {_ATTEMPTS} times: name a free rank with --rank")


def _run(plan: LaunchPlan, console: Console, *, quiet: bool) -> tuple[Controller, int]:
    rank = plan.seats[0].rank
    display = Display(console, [rank], quiet=quiet)
    with interruptible():
        controller = Controller(plan, lambda emit: {rank: LocalHost(emit)}, Faults(), display)
        with display:
            return controller, controller.run()


def _asked(options: JoinOptions, invitation: Invitation) -> tuple[LaunchPlan, str]:
    """Ask the swarm for its settings; return the plan, and the place of the member that answered."""
    with Lookout(invitation) as lookout:
        picture = lookout.look()
        place = lookout.place
    if picture.get("version") != __version__:
        raise CommandError(
            f"the swarm runs gossip {picture.get('version')}, and this machine {__version__}: install the same version"
        )
    if (of_row := row_of_run(picture["setup"]["run"])) is not None:
        raise CommandError(
            f"the replicas of {of_row[0]} have {of_row[1]} processes each (--grid), and gossip join starts one: a "
            "replica that died returns with gossip launch --restart N; for more replicas, start a run with a larger "
            "grid"
        )
    return _plan(options, picture, invitation, place), place


def _plan(options: JoinOptions, picture: dict[str, Any], invitation: Invitation, place: str) -> LaunchPlan:
    setup, members = picture["setup"], picture["members"]
    taken = {member["rank"]: member for member in members}
    rank, run_dir = _place_of(options, members)
    living = [member for member in members if member["membership"] not in ("dead", "left")]
    if not 0 <= rank < MEMBERS_LIMIT:
        raise CommandError(f"--rank {rank} is out of range: ranks are 0 to {MEMBERS_LIMIT - 1}")
    if rank in taken and taken[rank]["membership"] == "suspect":
        raise CommandError(f"rank {rank} is unresponsive but not yet declared dead; retry in a few seconds")
    if any(member["rank"] == rank for member in living):
        raise CommandError(f"rank {rank} is in use by {taken[rank]['endpoint']}; leave --rank out to get a free rank")
    # First the peer that answered: it is known to run. Then the others, in case it dies meanwhile.
    contacts = sorted(living, key=lambda member: member["endpoint"] != place)
    host = options.bind or route_to(Endpoint.parse(place).host)
    # The settings of the swarm; the plan adds the number of peers at the start.
    common: dict[str, Any] = {name: value for name, value in setup.items() if name != "world_size"}
    common |= {
        # Two newcomers that ask for one rank at the same time are told apart by their lives.
        "incarnation": drawn_life() + secrets.randbelow(LIVES_APART),
        **options.told(),
        "bind": str(Endpoint(host, 0)),
        "contacts": [member["endpoint"] for member in contacts],
    }
    if invitation.keys is not None:
        own = new_keys()
        common |= {
            "contact_keys": [member["key"] for member in contacts],
            "invitation": [invitation.keys.public.decode(), invitation.keys.secret.decode()],
            "keys": [own.public.decode(), own.secret.decode()],
        }
    return LaunchPlan(
        program(options.script, options.arguments, options.module),
        (PeerSeat(rank, 0, LOCAL),),
        common,
        run_dir.absolute(),
        restarts=options.restart,
        swarm=setup["world_size"],
        insecure=setup["insecure"],
    )


def _place_of(options: JoinOptions, members: Sequence[Mapping[str, Any]]) -> tuple[int, Path]:
    """Return the rank of the newcomer, and the run directory in which the records of that rank are its own."""
    known = {member["rank"] for member in members}
    run_dir = Path(options.run_dir or options.where)
    if not options.run_dir and not run_dir.is_dir():
        run_dir = Path(time.strftime("runs/%Y%m%d-%H%M%S-joined"))
    if options.rank is not None:
        # A peer that takes a known rank appends to the records of that rank: they tell the lives apart.
        if options.rank not in known and (run_dir / f"rank-{options.rank}").exists():
            raise CommandError(
                f"{run_dir / f'rank-{options.rank}'} belongs to a peer of another run; choose another --run-dir"
            )
        return options.rank, run_dir
    # A dead member may have been cut off and may return; a member that left does not.
    left = [member["rank"] for member in members if member["membership"] == "left"]
    if left:
        return min(left), run_dir
    for rank in count(max(known) + 1):
        try:
            (run_dir / f"rank-{rank}").mkdir(parents=True)
        except FileExistsError:
            continue  # of a newcomer that the swarm does not know yet, or that failed before it was let in
        except OSError as error:
            raise CommandError(
                f"cannot write to the run directory {run_dir}: {error.strerror or error}; choose another --run-dir"
            ) from error
        return rank, run_dir
    raise AssertionError(known)
