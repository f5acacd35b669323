"""A complete graph inside each host, and a named topology between the hosts.

Even steps average exactly inside every group, over the host's memory or its fast links. In odd steps the groups
exchange. The first members of all groups form one lane, the second members another, and so on. Every lane runs the
named topology among its members. Lanes are disjoint, so an odd step is doubly stochastic if the named topology is. That
holds even if the groups differ in size: a lane has a member of each group that is large enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from topologies.registry import parse, register
from topologies.schedule import Edges, Plan, Ranks
from topologies.topology_errors import BadParameter

__all__ = ["hierarchical"]


@register("hierarchical", directed=True)
def hierarchical(
    n: int,
    *,
    groups: int | tuple[int, ...] | None = None,
    hosts: tuple[str, ...] | None = None,
    between: str = "base",
    seed: int = 0,
) -> Plan:
    """Even steps average inside each group, odd steps run the topology `between` across the groups.

    Args:
        n: the number of peers.
        groups: the number of groups, or their sizes, as in 4+4+8; default: about sqrt(n) groups, equal if n allows.
        hosts: instead of groups, the host of every rank; ranks on one host form a group.
        between: the topology of the lanes, as on the command line.
        seed: the seed of ``between``, if it is random.
    """
    members = _members(n, groups, hosts)
    lanes = [
        [group[position] for group in members if len(group) > position]
        for position in range(max(len(group) for group in members))
    ]
    try:
        schedules = [parse(between, len(lane), seed=seed) for lane in lanes]
    except BadParameter as error:
        raise BadParameter(f"hierarchical, between: {error}") from error
    place: dict[int, tuple[int, int]] = {}  # rank -> (lane, place in the lane)
    home: dict[int, list[int]] = {}  # rank -> its group
    for group in members:
        home.update((rank, group) for rank in group)
    for number, lane in enumerate(lanes):
        place.update((rank, (number, i)) for i, rank in enumerate(lane))

    stages = 2 if len(members) > 1 and len(lanes) > 1 else 1  # one group has no odd steps, lone members no even ones

    def is_inside(step: int) -> bool:
        return len(members) == 1 or (stages == 2 and step % 2 == 0)

    def out(rank: int, step: int) -> Edges:
        if is_inside(step):
            group = home[rank]
            return tuple([(other, 1.0 / len(group)) for other in group if other != rank])
        number, i = place[rank]
        edges = schedules[number].out_edges(i, step // stages)
        return tuple([(lanes[number][other], fraction) for other, fraction in edges])

    def into(rank: int, step: int) -> Ranks:
        if is_inside(step):
            return tuple([other for other in home[rank] if other != rank])
        number, i = place[rank]
        return tuple([lanes[number][other] for other in schedules[number].in_neighbours(i, step // stages)])

    return Plan(_period([schedule.period for schedule in schedules], stages), out, into)


def _period(periods: Sequence[int | None], stages: int) -> int | None:
    known = [period for period in periods if period is not None]
    return stages * math.lcm(*known) if len(known) == len(periods) else None


def _members(n: int, groups: int | tuple[int, ...] | None, hosts: tuple[str, ...] | None) -> list[list[int]]:
    if hosts is not None:
        if groups is not None:
            raise BadParameter(f"hierarchical: give groups or hosts, not both: groups={groups}, hosts={hosts}")
        if len(hosts) != n:
            raise BadParameter(
                f"hierarchical: hosts lists {len(hosts)} hosts for {n} peers; list the host of every rank"
            )
        by_host: dict[str, list[int]] = {}
        for rank, host in enumerate(hosts):
            by_host.setdefault(host, []).append(rank)
        return list(by_host.values())
    if groups is None:
        root = math.isqrt(n)
        groups = next((d for d in range(root, root // 2, -1) if n % d == 0), root)
    if isinstance(groups, int):
        if not 1 <= groups <= n:
            raise BadParameter(f"hierarchical: groups must be 1 to {n} for {n} peers, not {groups}")
        sizes: Sequence[int] = [n // groups + (i < n % groups) for i in range(groups)]
    else:
        sizes = groups
        if not all(isinstance(size, int) and size > 0 for size in sizes) or sum(sizes) != n:
            written = "+".join(str(size) for size in sizes)
            raise BadParameter(f"hierarchical: groups must be positive sizes that sum to n = {n}, not {written}")
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [list(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]
