"""Whether a grid fits the processes and hosts of a launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gossip.grids import Grid
from launch.swarm.launch_plan import PeerSeat
from launch.user_errors import CommandError

__all__ = ["fitted_grid"]


def fitted_grid(text: str, seats: Sequence[PeerSeat], *, across_hosts: bool) -> Grid:
    """Return the grid, or raise an error that says which number to change.

    Args:
        text: as in 2x4; empty: a replica for each process.
        seats: of all processes.
        across_hosts: whether a replica may have processes on several hosts.
    """
    if not text:
        return Grid(1, len(seats))
    grid = Grid.parse(text)
    if grid.size != len(seats):
        raise CommandError(
            f"--grid {grid} has {grid.size} processes, and {len(seats)} are to be started: change -n, or the slots of "
            "the hostfile"
        )
    for host, slots in Counter(seat.host.host for seat in seats).items():
        if slots % grid.rows and not across_hosts:
            raise CommandError(
                f"--grid {grid}: host {host} has {slots} slots, which is no multiple of {grid.rows}, so a replica "
                "would have processes on two hosts. Torch does not encrypt between them: change the slots, or permit "
                "it with --crews-across-hosts"
            )
    return grid
