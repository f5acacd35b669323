"""What the core asks of an exchange that is more than pushing mass: a reduction, or a centre."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from gossip import events
from gossip.wire.messages import Address, Chunk, Enter, Lack

__all__ = ["Call", "Collective", "Said"]

#: What the trainer wants of it, and what peers say to each other about it.
Call = events.Synchronize | events.Reduce | events.Withdraw | events.Offer
Said = Enter | Lack | Chunk


class Collective(Protocol):
    """A state machine beside the core's own. It is told who is there with every call: the core's view is the truth."""

    def handle(self, call: Call, now: float) -> None:
        """Take in what the trainer wants."""

    def receive(self, message: Said, me: Address, members: Mapping[int, int], now: float) -> None:
        """Take in what a member says."""

    def work(self, me: Address, members: Mapping[int, int], now: float) -> Iterator[Said | events.Effect]:
        """Do all that can be done now: yield what is to be sent, and effects. To be called after every event."""

    @property
    def deadline(self) -> float | None:
        """When to call `work` again, if nothing else happens before."""
