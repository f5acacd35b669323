"""How many peers an average takes in after some turns, whatever the graph."""

from __future__ import annotations

from collections import defaultdict

from topologies.schedule import Schedule

__all__ = ["reach"]

#: The ranks whose mass is followed: where they differ, as in a star, their mean counts.
_SOURCES = 4


def reach(schedule: Schedule, turns: int) -> float:
    """Return the effective number of peers that one peer's mass is spread over after this number of turns.

    With p the parts of the mass at each peer it is 1 / sum of p^2: 1 if all is where it was, n if all have the same.
    """
    sources = range(0, schedule.n, -(-schedule.n // _SOURCES))
    return sum(_spread(schedule, source, turns) for source in sources) / len(sources)


def _spread(schedule: Schedule, source: int, turns: int) -> float:
    parts: dict[int, float] = {source: 1.0}
    for turn in range(turns):
        after: dict[int, float] = defaultdict(float)
        for rank, part in parts.items():
            after[rank] += part * schedule.kept(rank, turn)
            for other, fraction in schedule.out_edges(rank, turn):
                after[other] += part * fraction
        parts = after
    return 1 / sum(part * part for part in parts.values())
