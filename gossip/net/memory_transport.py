"""A transport within one process: for tests, and for peers that are threads.

It keeps the contract of `gossip.net.transport`. Whose memory is it? From `send` until the message is received, the
sender's: frames are queued as they are, so a parcel that is sent again costs no memory, and who changes buffers before
the answer breaks the contract, which the checksum shows. From `receive` on, the receiver's: it gets immutable bytes of
its own, copied at that moment. Whatever the sender does to its memory then, or to itself, does not change them.

What was sent before a `close` has arrived, and is still received. After it, `send` says False, `receive` None, and
`connect` and `wait` raise a `TransportError`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import numpy as np

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.net.transport import TransportError
from gossip.values.buffers import Buffer

__all__ = ["Hub", "MemoryTransport"]


class Hub:
    """Where transports of one process find each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bound: dict[Endpoint, MemoryTransport] = {}
        self._last_port = 0

    def bind(self, endpoint: Endpoint, transport: MemoryTransport) -> Endpoint:
        """Give a transport a place; port 0 asks for a new one."""
        with self._lock:
            if endpoint.port == 0:
                self._last_port += 1
                endpoint = endpoint._replace(port=self._last_port)
            if endpoint in self._bound:
                raise TransportError(f"cannot listen on {endpoint}: somebody does")
            self._bound[endpoint] = transport
            return endpoint

    def find(self, endpoint: Endpoint) -> MemoryTransport | None:
        """Return who is at a place, if anybody is."""
        return self._bound.get(endpoint)

    def release(self, endpoint: Endpoint) -> None:
        """Give a place back."""
        with self._lock:
            self._bound.pop(endpoint, None)


class MemoryTransport:
    """Frames from thread to thread."""

    def __init__(self, hub: Hub, bind: Endpoint | None = None, *, queue: int = 64) -> None:
        """Take a place at a hub.

        Args:
            hub: where the others are.
            bind: the place; None, or port 0, for any.
            queue: messages from one sender that may lie unread; more are dropped.
        """
        self._hub = hub
        self._queue = queue
        self._peers: dict[int, Endpoint] = {}
        #: Guards all below, which senders in other threads touch; it is never held while another one's is taken.
        self._changed = threading.Condition(threading.Lock())
        self._arrived: deque[tuple[MemoryTransport, Sequence[Buffer]]] = deque()
        #: Of each sender, which payloads lie in `_arrived`, in that order.
        self._unread: dict[MemoryTransport, deque[int | None]] = {}
        self._woken = False
        self._closed = False
        self._endpoint = hub.bind(bind or Endpoint("memory", 0), self)

    @property
    def endpoint(self) -> Endpoint:
        """Where others at the same hub reach this one."""
        return self._endpoint

    @property
    def looks_only(self) -> bool:
        """Never: everybody in the process is let in."""
        return False

    def admit(self, key: bytes, *, looks_only: bool = False) -> None:
        """Do nothing: everybody in the process is let in."""

    def connect(self, rank: int, endpoint: Endpoint, key: bytes | None = None) -> None:
        """Make a rank reachable, or reachable somewhere else."""
        if self._closed:
            raise TransportError(f"cannot connect to rank {rank} at {endpoint}: this transport is closed")
        if key is not None:
            raise SettingsError(f"rank {rank}: peers in one process have no keys")
        self.disconnect(rank)
        self._peers[rank] = endpoint

    def reconnect(self, rank: int) -> None:
        """Do nothing: within a process no connection fails."""

    def disconnect(self, rank: int) -> None:
        """Forget a rank and all that it has not received yet."""
        endpoint = self._peers.pop(rank, None)
        receiver = None if endpoint is None else self._hub.find(endpoint)
        if receiver is not None:
            receiver._withdraw(self)

    def send(self, rank: int, frames: Sequence[Buffer], ordered: bool = False) -> bool:  # noqa: ARG002 - all are
        """Send, all in order; return False if nobody is there, its queue is full, or the payload is in it already."""
        endpoint = self._peers.get(rank)
        receiver = None if endpoint is None else self._hub.find(endpoint)
        return receiver is not None and receiver._take(self, frames)

    def receive(self) -> Sequence[Buffer] | None:
        """Return a message that has arrived, as bytes of our own, or None."""
        with self._changed:
            if not self._arrived:
                return None
            sender, frames = self._arrived.popleft()
            unread = self._unread[sender]
            unread.popleft()
            if not unread:
                del self._unread[sender]
        return [bytes(frame) for frame in frames]  # bytes stay what they are, the rest is copied

    def wait(self, timeout: float | None) -> None:
        """Return when a message is there, `wake` was called, or ``timeout`` seconds have passed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._arrived or self._woken or self._closed,
                None if timeout is None else max(0.0, timeout),
            )
            self._woken = False
            if self._closed:
                raise TransportError(f"the transport at {self._endpoint} is closed")

    def wake(self) -> None:
        """End a `wait` from another thread, or the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def close(self) -> None:
        """Leave the hub, and forget what was not received; calling it again does nothing."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._arrived.clear()
            self._unread.clear()
            self._changed.notify()
        self._peers.clear()
        self._hub.release(self._endpoint)

    def _take(self, sender: MemoryTransport, frames: Sequence[Buffer]) -> bool:
        """Let a message lie here, in the sender's thread."""
        payload = _place(frames[-1]) if len(frames) > 1 and len(frames[-1]) else None
        with self._changed:
            unread = self._unread.get(sender, ())
            if self._closed or len(unread) >= self._queue or (payload is not None and payload in unread):
                return False
            self._unread.setdefault(sender, deque()).append(payload)
            self._arrived.append((sender, tuple(frames)))
            self._changed.notify()
        return True

    def _withdraw(self, sender: MemoryTransport) -> None:
        """Forget what a sender has left here."""
        with self._changed:
            if self._unread.pop(sender, None):
                self._arrived = deque(one for one in self._arrived if one[0] is not sender)


def _place(payload: Buffer) -> int:
    """Return what tells memory apart while it is in use: where it is, whichever view of it is at hand."""
    return int(np.frombuffer(payload, np.uint8).ctypes.data)
