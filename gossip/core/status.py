"""Status: an immutable picture of a core, for everybody who must not touch the core itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gossip.errors import Reason
from gossip.wire.messages import Address

__all__ = ["Status"]


class Status(NamedTuple):
    """One peer's core at one moment. Tuples are by shard."""

    me: Address
    #: Local steps finished.
    step: int
    #: The incarnation of every member, this peer included, by rank, ascending.
    members: Mapping[int, int]
    #: The next turn of each shard.
    turns: tuple[int, ...]
    #: The weight that is held.
    weights: tuple[float, ...]
    #: The weight that has arrived and is not merged yet.
    waiting_weights: tuple[float, ...]
    #: The weight that was sent and is not answered yet.
    unanswered_weights: tuple[float, ...]
    #: Of that, the weight that nobody trains meanwhile.
    untrained: tuple[float, ...]
    #: Whether anything has arrived that is to be merged before the next move.
    arrivals: bool
    #: How many pieces of the state that this peer adopts have not come yet.
    lacking: int
    #: Whether others have begun the average of all that this peer comes to next, and wait for it.
    called: bool
    #: How many frames were rejected, by reason.
    rejected: Mapping[Reason, int]
    #: While measuring: how far the mass that the last step merged lay from our own, by shard.
    gaps: Mapping[int, float]
