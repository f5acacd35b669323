"""A network that loses, doubles, damages, delays, queues and cuts, all by the seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gossip.simulation.scenario import Scenario
from gossip.wire import Buffer
from topologies.draws import draw

__all__ = ["Network"]

#: What a frame costs on the wire beside its own bytes; ZeroMQ needs at most 9, TCP/IP about 40 per packet.
_OVERHEAD = 49


class Network:
    """Decides what becomes of each message; the caller delivers."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._free_at: dict[tuple[int, int], float] = {}
        self._cuts: list[Callable[[int, int], bool]] = []
        self.messages = 0
        self.bytes = 0
        self.lost = 0

    def cut(self, separates: Callable[[int, int], bool]) -> None:
        """Let nothing pass between ranks that are separated, until `heal` with the same function."""
        self._cuts.append(separates)

    def heal(self, separates: Callable[[int, int], bool]) -> None:
        """End a cut."""
        self._cuts.remove(separates)

    def reachable(self, a: int, b: int) -> bool:
        """Whether no cut lies between two ranks."""
        return not any(separates(a, b) for separates in self._cuts)

    def carry(
        self, now: float, sender: int, receiver: int, frames: Sequence[Buffer]
    ) -> list[tuple[float, Sequence[Buffer]]]:
        """Return when which copies of the message arrive: none if it is lost, two if it is doubled."""
        number = self.messages
        size = sum(map(len, frames)) + _OVERHEAD
        self.messages += 1
        self.bytes += size
        if (self._cuts and not self.reachable(sender, receiver)) or self._happens(self._scenario.loss, number, 0):
            self.lost += 1
            return []
        start = now
        if self._scenario.bandwidth is not None:
            start = max(now, self._free_at.get((sender, receiver), 0.0)) + size / self._scenario.bandwidth
            self._free_at[sender, receiver] = start
        if self._happens(self._scenario.corrupt, number, 1):
            frames = self._damaged(frames, number)
        copies = 2 if self._happens(self._scenario.duplicate, number, 2) else 1
        low, high = self._scenario.delay
        return [(start + low + (high - low) * self._uniform(number, 3, copy), frames) for copy in range(copies)]

    def _damaged(self, frames: Sequence[Buffer], number: int) -> list[Buffer]:
        """Flip one bit somewhere."""
        copies = [bytearray(frame) for frame in frames]
        total = sum(len(copy) for copy in copies)
        where = draw(self._scenario.seed, number, 4) % (8 * total)
        for copy in copies:
            if where < 8 * len(copy):
                copy[where // 8] ^= 1 << where % 8
                break
            where -= 8 * len(copy)
        return list(copies)

    def _happens(self, share: float, *keys: int) -> bool:
        return share > 0 and self._uniform(*keys) < share

    def _uniform(self, *keys: int) -> float:
        return (draw(self._scenario.seed, *keys) >> 11) / (1 << 53)
