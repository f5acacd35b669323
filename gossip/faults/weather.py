"""The treatment of messages: a network that loses, duplicates, corrupts, delays, queues and cuts them, by the seed.

This module only decides. The simulator delivers messages in virtual time, and `gossip.net.disturbed_transport` over a
real transport.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gossip.errors import SettingsError
from gossip.values.buffers import Buffer
from topologies.draws import draw

__all__ = ["Counts", "Network", "Separates", "Weather"]

#: Whether nothing passes between two ranks.
Separates = Callable[[int, int], bool]

#: The bytes of a frame on the wire besides its own; ZeroMQ needs at most 9, TCP/IP about 40 per packet.
_OVERHEAD = 49


@dataclass(frozen=True)
class Weather:
    """How a network treats messages. By default all arrive, once, undamaged and immediately."""

    seed: int = 0
    #: The share of messages that is lost, duplicated, corrupted.
    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    #: The least and the largest delay of a message, in seconds.
    delay: tuple[float, float] = (0.0, 0.0)
    #: Bytes per second of each directed link; None: no limit.
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise SettingsError(f"bandwidth must be above 0 bytes per second, not {self.bandwidth}")
        for name in ("loss", "duplicate", "corrupt"):
            if not 0 <= getattr(self, name) < 1:
                raise SettingsError(f"{name} must be a share from 0% to less than 100%, not {getattr(self, name):.0%}")
        low, high = self.delay
        if not 0 <= low <= high < float("inf"):
            raise SettingsError(f"delay must be 0 or more seconds, the least first, not {low} to {high}")

    def seen_by(self, rank: int) -> Weather:
        """Return this weather with a seed of one sender: with equal seeds, the n-th messages of all would be lost."""
        return replace(self, seed=draw(self.seed, 8, rank))


@dataclass
class Counts:
    """The number of messages that were sent, lost, and so on. Copies of a message are counted as one."""

    messages: int = 0
    bytes: int = 0
    lost: int = 0
    cut: int = 0
    doubled: int = 0
    damaged: int = 0
    delayed: int = 0


class Network:
    """Decides the treatment of each message; the caller delivers it.

    Only one thread may call `carry`. Any thread may call `cut` and `heal`, which apply from the next message on.
    """

    def __init__(self, weather: Weather) -> None:
        self._weather = weather
        self._free_at: dict[tuple[int, int], float] = {}
        self._lock = threading.Lock()
        self._cuts: tuple[Separates, ...] = ()  #: replaced, never changed: `carry` reads it without the lock
        self.counts = Counts()

    def cut(self, separates: Separates) -> None:
        """Block all messages between separated ranks, until `heal` is called with the same function."""
        with self._lock:
            self._cuts = (*self._cuts, separates)

    def heal(self, separates: Separates) -> None:
        """End a cut."""
        with self._lock:
            where = self._cuts.index(separates)
            self._cuts = self._cuts[:where] + self._cuts[where + 1 :]

    def reachable(self, a: int, b: int) -> bool:
        """Whether no cut lies between two ranks."""
        return not any(separates(a, b) for separates in self._cuts)

    def carry(
        self, now: float, sender: int, receiver: int, frames: Sequence[Buffer]
    ) -> list[tuple[float, Sequence[Buffer]]]:
        """Return each copy of the message with its time of arrival: none if it is lost, two if it is duplicated.

        The frames are copied only if they are corrupted.
        """
        weather, counts = self._weather, self.counts
        number = counts.messages
        size = sum(map(len, frames)) + _OVERHEAD
        counts.messages += 1
        counts.bytes += size
        if self._cuts and not self.reachable(sender, receiver):
            counts.cut += 1
            return []
        if self._happens(weather.loss, number, 0):
            counts.lost += 1
            return []
        start = now
        if weather.bandwidth is not None:
            start = max(now, self._free_at.get((sender, receiver), 0.0)) + size / weather.bandwidth
            self._free_at[sender, receiver] = start
        if self._happens(weather.corrupt, number, 1):
            counts.damaged += 1
            frames = self._damaged(frames, number)
        copies = 1
        if self._happens(weather.duplicate, number, 2):
            counts.doubled += 1
            copies = 2
        low, high = weather.delay
        arrivals = [start + low + (high - low) * self._uniform(number, 3, copy) for copy in range(copies)]
        counts.delayed += max(arrivals) > now
        return [(arrival, frames) for arrival in arrivals]

    def _damaged(self, frames: Sequence[Buffer], number: int) -> list[Buffer]:
        """Return a copy with one random bit flipped."""
        copies = [bytearray(frame) for frame in frames]
        total = sum(len(copy) for copy in copies)
        where = draw(self._weather.seed, number, 4) % (8 * max(total, 1))
        for copy in copies:
            if where < 8 * len(copy):
                copy[where // 8] ^= 1 << where % 8
                break
            where -= 8 * len(copy)
        return list(copies)

    def _happens(self, share: float, *keys: int) -> bool:
        return share > 0 and self._uniform(*keys) < share

    def _uniform(self, *keys: int) -> float:
        return (draw(self._weather.seed, *keys) >> 11) / (1 << 53)
