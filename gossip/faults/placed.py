"""Faults of a grid: ranks that are written REPLICA.ROW, and what a cut means in the swarm of each row.

A process is named by its rank, or by its replica and row, as in 1.0. The rows of a replica gossip in swarms of their
own, in which each is known by the number of its replica.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gossip.errors import SettingsError
from gossip.faults.grammar import Cut
from gossip.grids import Grid

__all__ = ["cut_in_row", "with_ranks"]

_PLACE = re.compile(r"(?<![\d.])(\d{1,9})\.(\d{1,9})(?![\d.])", re.ASCII)


def with_ranks(text: str, end: str, grid: Grid | None) -> str:
    """Return the text of a fault or straggler with each REPLICA.ROW replaced by the rank of that process.

    Args:
        text: of the fault, without its kind.
        end: the character behind the ranks; what follows may hold times, such as 2.5s.
        grid: of the run; None: it has none.
    """
    ranks, mark, rest = text.partition(end)
    if not mark or _PLACE.search(ranks) is None:
        return text
    if grid is None:
        raise SettingsError(
            f"{text!r} names a process by its replica and row, and the run has no grid: give a rank, or --grid"
        )
    return _PLACE.sub(lambda found: str(grid.rank(int(found[1]), int(found[2]))), ranks) + mark + rest


def cut_in_row(cut: Cut, grid: Grid, row: int) -> Cut | None:
    """Return the cut between replicas that a cut between processes is for one row; None if it does not concern it."""
    left, right = (
        frozenset(grid.replica(rank) for rank in side if grid.row(rank) == row) for side in (cut.left, cut.right)
    )
    return replace(cut, left=left, right=right) if left and right else None
