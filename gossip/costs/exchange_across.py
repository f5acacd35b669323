"""What the replicas exchange across the grid: gossip, whose volume does not depend on how many replicas there are."""

from __future__ import annotations

from dataclasses import dataclass

from gossip.costs.machine import Machine
from gossip.costs.volumes import Volume, all_reduce
from gossip.errors import SettingsError
from gossip.grids import Grid
from gossip.shares import check_share
from topologies.schedule import Schedule

__all__ = ["Across", "Crossing", "crossing"]

#: The steps that are looked at of a schedule without a period, or with a long one.
_STEPS = 64


@dataclass(frozen=True)
class Across:
    """How a row exchanges its part with the same rows of other replicas.

    With gossip a process sends ``share * codec * |W| / P_r`` to each neighbour of a step, whatever P_c is. With an
    all-reduce it sends 2 (P_c - 1) / P_c of ``codec * |W| / P_r``, as in the paper.
    """

    #: Whether replicas gossip; otherwise they average gradients by an all-reduce.
    gossips: bool = True
    #: The part of the values that is sent in an exchange.
    share: float = 1.0
    #: Bytes on the wire for each byte of values.
    codec: float = 1.0
    #: Exchanges in a step: above 1 for several rounds, below 1 for local steps.
    frequency: float = 1.0
    #: Whether the exchange runs while the next step computes.
    overlaps: bool = True

    def __post_init__(self) -> None:
        check_share(self.share)
        for field in ("codec", "frequency"):
            if not getattr(self, field) > 0:
                raise SettingsError(f"{field} must be above 0, not {getattr(self, field)}")

    def volume(self, grid: Grid, size: float) -> Volume:
        """Return the volume of a process for one neighbour and exchange, for ``size`` bytes of weights of a replica."""
        if grid.replicas == 1 or not size:
            return Volume()
        part = size * self.codec / grid.rows
        return Volume(1.0, part * self.share) if self.gossips else all_reduce(grid.replicas, part)


@dataclass(frozen=True)
class Crossing:
    """How many times the volume of a process goes over links in a step, on average: of a process, and of a host."""

    #: Neighbours that a process sends to.
    sent: float
    #: What the busiest process sends to others of its host.
    inside: float
    #: What the busiest host sends to other hosts, or receives from them, in parts of processes.
    between: float


def crossing(machine: Machine, grid: Grid, across: Across, schedule: Schedule | None) -> Crossing:
    """Return what crosses links in a step; ``schedule`` is that of the replicas, and None for an all-reduce.

    All rows of a replica follow the same schedule. Each step is as slow as its busiest host, so the mean over steps is
    that of the busiest.
    """
    hosts = machine.host_of()
    several = len({hosts[rank] for rank in range(grid.size)}) > 1
    if grid.replicas == 1:
        return Crossing(0.0, 0.0, 0.0)
    if schedule is None:
        # A ring for each row, in the order of the ranks: it leaves a host once for each row that the host has.
        rings = min(max(machine.hosts), grid.rows)
        return Crossing(across.frequency, across.frequency, rings * across.frequency if several else 0.0)
    steps = min(schedule.period or _STEPS, _STEPS)
    sent = inside = between = 0.0
    for step in range(steps):
        own = [0] * grid.size
        out, into = [0] * len(machine.hosts), [0] * len(machine.hosts)
        for replica in range(grid.replicas):
            edges = schedule.out_edges(replica, step)
            sent += len(edges) / grid.replicas
            for other, _ in edges:
                for row in range(grid.rows):
                    here, there = hosts[grid.rank(replica, row)], hosts[grid.rank(other, row)]
                    if here == there:
                        own[grid.rank(replica, row)] += 1
                    else:
                        out[here] += 1
                        into[there] += 1
        inside += max(own)
        between += max(*out, *into)
    times = across.frequency / steps
    return Crossing(sent * times, inside * times, between * times)
