"""Bad weather for any transport: what is sent through here is treated as a `Network` decides.

Over `MemoryTransport` this is the simulated network in real time; over a real transport it is where faults are injected
into a run of processes. Only what goes out is disturbed, so a cut needs both sides, each with its own.

A sender is not told of what the network does: `send` says True for a message that is lost, cut off or held back.
Messages that are held back wait as they are, uncopied: nobody changes a message's buffers before it is answered, and
should a parcel be answered by way of a copy that came earlier, and its memory be used again, then the one
held back arrives with a checksum that does not fit. A copy is made only where memory of its own is the point:
of what is damaged, and of the second of a pair, which a transport may drop while the very same payload is leaving.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Sequence

from gossip.endpoint import Endpoint
from gossip.faults.weather import Counts, Network
from gossip.net.transport import Transport
from gossip.values.buffers import Buffer

__all__ = ["DisturbedTransport"]


class DisturbedTransport:
    """A transport whose messages go through a network.

    The network belongs to this transport alone, with a seed of its own (`Weather.seen_by`), so that what becomes
    of the n-th message depends on the seed and n only. As with any transport all calls save `wake` are the owning
    thread's; but `network.cut` and `network.heal` may be called from any.
    """

    #: Messages to one rank that may be held back. A slow link that is sent more than it carries is full at some point.
    _HELD = 1024

    def __init__(
        self, inner: Transport, rank: int, network: Network, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Wrap a transport, which is this one's from now on.

        Args:
            inner: what really sends.
            rank: who sends: cuts are between ranks.
            network: decides what becomes of each message.
            clock: monotonic seconds.
        """
        self.network = network
        #: Copies that were due, and the inner transport would not take.
        self.dropped = 0
        self._inner = inner
        self._rank = rank
        self._clock = clock
        self._known: set[int] = set()
        #: (when due, order, rank, frames), a heap.
        self._held: list[tuple[float, int, int, Sequence[Buffer], bool]] = []
        self._held_for: Counter[int] = Counter()
        self._order = 0

    @property
    def counts(self) -> Counts:
        """What has been done to the messages so far, for logs."""
        return self.network.counts

    @property
    def endpoint(self) -> Endpoint:
        """Where others reach this one."""
        return self._inner.endpoint

    @property
    def looks_only(self) -> bool:
        """Whether the sender of the message that was received last may look, and no more."""
        return self._inner.looks_only

    def admit(self, key: bytes, *, looks_only: bool = False) -> None:
        """Let the bearer of a public key in from now on, as a member or to look."""
        self._inner.admit(key, looks_only=looks_only)

    def connect(self, rank: int, endpoint: Endpoint, key: bytes | None = None) -> None:
        """Make a rank reachable, or reachable somewhere else."""
        self._forget(rank)
        self._inner.connect(rank, endpoint, key)
        self._known.add(rank)

    def reconnect(self, rank: int) -> None:
        """Connect anew to where a rank is; what is held back for it is as if it were in flight still."""
        self._inner.reconnect(rank)

    def disconnect(self, rank: int) -> None:
        """Forget a rank and all that was queued or held back for it."""
        self._forget(rank)
        self._inner.disconnect(rank)

    def send(self, rank: int, frames: Sequence[Buffer], ordered: bool = False) -> bool:
        """Send, now or when it is due; return False if the rank is unknown, its queue full, or it is not there."""
        self._release()
        if rank not in self._known or self._held_for[rank] >= self._HELD:
            return False
        now = self._clock()
        taken = True
        for copy, (due, carried) in enumerate(self.network.carry(now, self._rank, rank, frames)):
            if copy == 0:
                taken = self._pass_on(now, due, rank, carried, ordered)
            else:
                self._pass_on(now, due, rank, [bytes(memoryview(frame)) for frame in carried], ordered)
        return taken

    def receive(self) -> Sequence[Buffer] | None:
        """Return a message that has arrived, or None."""
        self._release()
        return self._inner.receive()

    def wait(self, timeout: float | None) -> None:
        """Return when a message is there or has come due, `wake` was called, or ``timeout`` seconds have passed."""
        self._release()
        if self._held:
            due = max(0.0, self._held[0][0] - self._clock())
            timeout = due if timeout is None else min(timeout, due)
        self._inner.wait(timeout)
        self._release()

    def wake(self) -> None:
        """End a `wait` from another thread."""
        self._inner.wake()

    def close(self) -> None:
        """Give everything back, at once; what is held back is lost."""
        self._known.clear()
        self._held.clear()
        self._held_for.clear()
        self._inner.close()

    def _pass_on(self, now: float, due: float, rank: int, frames: Sequence[Buffer], ordered: bool) -> bool:
        """Send, or hold back until it is due; return whether it was taken."""
        if due > now:
            self._order += 1
            heapq.heappush(self._held, (due, self._order, rank, frames, ordered))
            self._held_for[rank] += 1
            return True
        taken = self._inner.send(rank, frames, ordered)
        self.dropped += not taken
        return taken

    def _release(self) -> None:
        """Send what has come due."""
        while self._held and self._held[0][0] <= (now := self._clock()):
            due, _, rank, frames, ordered = heapq.heappop(self._held)
            self._held_for[rank] -= 1
            self._pass_on(now, due, rank, frames, ordered)

    def _forget(self, rank: int) -> None:
        self._known.discard(rank)
        if self._held_for.pop(rank, 0):
            self._held = [one for one in self._held if one[2] != rank]
            heapq.heapify(self._held)
