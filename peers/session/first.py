"""Which peer of a swarm is the first: the one that writes what is to be written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["STOPPING", "is_first"]

#: What a peer reports of itself when it leaves before its training has come to the end.
STOPPING = "stopping"


def is_first(rank: int, states: Mapping[int, str], rows: Mapping[int, Mapping[str, Any]]) -> bool:
    """Return whether no lower rank is the first.

    A rank that died is passed over. So is one that left before its training had come to the end, such as a machine that
    is preempted: it says so in its last row. A rank that left at the end of its training stays the first. Whatever was
    to be written at the end it has written, and nobody writes that a second time.

    Args:
        rank: of this peer.
        states: the state of each other rank, as membership has it.
        rows: what each rank last said of itself.
    """

    def passed_over(other: int) -> bool:
        state = states[other]
        return state == "dead" or (state == "left" and rows.get(other, {}).get("state") == STOPPING)

    return all(passed_over(other) for other in states if other < rank)
