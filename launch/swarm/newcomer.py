"""From an invitation to a new peer of a running swarm: ask for the swarm's settings, then start a peer with them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gossip.endpoint import Endpoint
from gossip.faults import Faults
from gossip.membership.table import MEMBERS_LIMIT
from gossip.net.routes import route_to
from gossip.net.transport import new_keys
from gossip.version import __version__
from launch.options.options import JoinOptions
from launch.swarm.controller import Controller
from launch.swarm.host import LocalHost
from launch.swarm.hostfile import LOCAL
from launch.swarm.interrupts import interruptible
from launch.swarm.launch_plan import LaunchPlan, PeerSeat, check_program, program
from launch.terminal import output
from launch.user_errors import CommandError
from launch.watch.display import Display
from launch.watch.invitation import JOIN, Invitation, found
from launch.watch.lookout import Lookout
from peers.table.lives import LIVES_APART

__all__ = ["join"]


def join(options: JoinOptions) -> int:
    """Start one more peer and watch it; return the exit code."""
    check_program(options.script, options.module, here=True)
    invitation = found(options.where, JOIN, Path(options.key) if options.key else None)
    with Lookout(invitation) as lookout:
        picture = lookout.look()
        place = lookout.place
    if picture.get("version") != __version__:
        raise CommandError(
            f"the swarm runs gossip {picture.get('version')}, and this machine {__version__}: install the same version"
        )
    plan = _plan(options, picture, invitation, place)
    console = output()
    rank = plan.seats[0].rank
    console.print(f"gossip: joining {plan.common['run']} as rank {rank}, through {place}", soft_wrap=True)
    display = Display(console, [rank], quiet=options.quiet)
    with interruptible():
        controller = Controller(plan, lambda emit: {rank: LocalHost(emit)}, Faults(), display)
        with display:
            return controller.run()


def _plan(options: JoinOptions, picture: dict[str, Any], invitation: Invitation, place: str) -> LaunchPlan:
    setup, members = picture["setup"], picture["members"]
    taken = {member["rank"]: member for member in members}
    # A dead member may have been cut off and may return; a member that left does not.
    left = [member["rank"] for member in members if member["membership"] == "left"]
    rank = options.rank if options.rank is not None else min(left, default=max(taken) + 1)
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
        "incarnation": LIVES_APART,
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
        _run_dir(options, rank, known=rank in taken).absolute(),
        restarts=options.restart,
        swarm=setup["world_size"],
        insecure=setup["insecure"],
    )


def _run_dir(options: JoinOptions, rank: int, *, known: bool) -> Path:
    if options.run_dir:
        run_dir = Path(options.run_dir)
    elif Path(options.where).is_dir():
        run_dir = Path(options.where)
    else:
        return Path(time.strftime(f"runs/%Y%m%d-%H%M%S-joined-{rank}"))
    # A peer that takes a known rank appends to the records of that rank: they tell the lives apart.
    if not known and (run_dir / f"rank-{rank}").exists():
        raise CommandError(f"{run_dir / f'rank-{rank}'} belongs to a peer of another run; choose another --run-dir")
    return run_dir
