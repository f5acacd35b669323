"""The few forms that most plans have, so that the module of a topology contains only what is special about it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from topologies.schedule import Edge, Edges, Plan, Ranks

__all__ = ["metropolis", "shifts", "symmetric", "table", "uniform"]


def shifts(n: int, period: int | None, hops: Callable[[int], Iterable[tuple[int, float]]]) -> Plan:
    """Plan a circulant graph: at each step every rank i sends to i + hop, for the step's ``(hop, fraction)``.

    Hops are distinct and not 0 modulo n; `uniform` makes such a list.
    """

    def out(rank: int, step: int) -> Edges:
        return tuple([((rank + hop) % n, fraction) for hop, fraction in hops(step)])

    def into(rank: int, step: int) -> Ranks:
        return tuple([(rank - hop) % n for hop, _ in hops(step)])

    return Plan(period, out, into)


def uniform(n: int, hops: Iterable[int]) -> list[tuple[int, float]]:
    """Give each hop that is distinct modulo n, and each peer itself, the same fraction.

    Hops are taken modulo n first. Otherwise a small or even n would be wrong: with n = 2 the hops +1 and -1 are one
    edge, with n = 8 the hops +4 and -4 are one edge, and a hop of n is no edge.
    """
    distinct = sorted({hop % n for hop in hops} - {0})
    return [(hop, 1.0 / (len(distinct) + 1)) for hop in distinct]


def symmetric(period: int | None, out: Callable[[int, int], Edges]) -> Plan:
    """Plan a schedule in which every peer receives from exactly those that it sends to."""
    return Plan(period, out, lambda rank, step: tuple([destination for destination, _ in out(rank, step)]))


def table(steps: Sequence[Sequence[Sequence[Edge]]]) -> Plan:
    """Plan from a list of the out-edges of every rank at every step: ``steps[step][rank]``."""
    outgoing = [[tuple(edges) for edges in step] for step in steps]
    incoming: list[list[list[int]]] = [[[] for _ in step] for step in steps]
    for froms, step in zip(incoming, outgoing, strict=True):
        for rank, edges in enumerate(step):
            for destination, _ in edges:
                froms[destination].append(rank)
    return Plan(len(steps), lambda rank, t: outgoing[t][rank], lambda rank, t: tuple(incoming[t][rank]))


def metropolis(neighbours: Sequence[Collection[int]]) -> list[list[Edge]]:
    """Give the edges of an undirected graph Metropolis fractions, 1 / (1 + the larger degree of the two ends).

    Metropolis fractions are symmetric, so the step is doubly stochastic even if the graph is irregular.
    """
    return [[(v, 1.0 / (1 + max(len(mine), len(neighbours[v])))) for v in sorted(mine)] for mine in neighbours]
