"""A network whose bottleneck is each machine's network card: what it sends queues up, and what it receives does too.

The simulator's own network has a bandwidth for every pair of machines, so that a peer which all others send to would
never be a bottleneck. Here a message is sent once the card has sent all before it, and is there once the receiver's
card has taken it in, behind all that were sent to it before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from gossip.faults.weather import Network, Weather
from gossip.values.buffers import Buffer

__all__ = ["Cards"]


class Cards(Network):
    """Decides when messages arrive, by the cards of both ends."""

    def __init__(self, weather: Weather) -> None:
        """Take the bandwidth of the weather for that of each card, both ways."""
        super().__init__(replace(weather, bandwidth=None))
        self._bandwidth = weather.bandwidth
        self._sent: dict[int, float] = defaultdict(float)
        self._received: dict[int, float] = defaultdict(float)

    def carry(
        self, now: float, sender: int, receiver: int, frames: Sequence[Buffer]
    ) -> list[tuple[float, Sequence[Buffer]]]:
        """Return when which copies of the message arrive."""
        before = self.counts.bytes
        arrivals = super().carry(now, sender, receiver, frames)
        if self._bandwidth is None:
            return arrivals
        seconds = (self.counts.bytes - before) / self._bandwidth
        sent = self._sent[sender] = max(now, self._sent[sender]) + seconds
        if not arrivals:
            return []
        received = self._received[receiver] = max(sent, self._received[receiver] + seconds)
        return [(arrival + received - now, copy) for arrival, copy in arrivals]
