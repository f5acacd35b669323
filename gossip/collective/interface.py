"""The interface between the core and an exchange that is more than pushing mass: a reduction, or a centre."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from gossip import events
from gossip.wire.messages import Address, Chunk, Enter, Lack

__all__ = ["Call", "Collective", "Said"]

#: Requests of the trainer, and messages between peers.
Call = events.Synchronize | events.Reduce | events.Withdraw | events.Offer
Said = Enter | Lack | Chunk


class Collective(Protocol):
    """A state machine beside the core's own. Every call passes the present members, from the core's view."""

    def handle(self, call: Call, now: float) -> None:
        """Take in a request of the trainer."""

    def receive(self, message: Said, me: Address, members: Mapping[int, int], now: float) -> None:
        """Take in a message of a member."""

    def work(self, me: Address, members: Mapping[int, int], now: float) -> Iterator[Said | events.Effect]:
        """Do all that can be done now: yield messages to send, and effects. Call it after every event."""

    @property
    def called(self) -> bool:
        """Whether others have begun the average that this peer comes to next, and wait for it."""

    @property
    def deadline(self) -> float | None:
        """The time at which to call `work` again, if no event comes before."""
