"""How frames get from peer to peer: the interface of a transport, and what every transport promises.

The protocol core is built for a network that promises little. `tests/gossip/net/test_conformance.py` holds every
transport to these sentences, and `gossip.net.zmq_transport` is the one that peers use.

**Delivery**

- A message is a sequence of frames. It arrives whole, frame by frame as it was sent, or not at all.
- A message may be lost, doubled, late or out of order. Nobody is told: the core sends again what is not answered.
- On a network that keeps the order, messages that are sent ``ordered`` do not overtake each other.
- Damage is allowed, too: every message has checksums, and the core rejects what does not fit them.

**Sending**

- `send` never blocks. What cannot be taken now is dropped, and `send` returns False.
- Nothing is queued for a peer that is not connected, so nothing piles up for the dead. The queue of a peer that is
  connected and does not read has an end.
- Buffers are not copied, so nobody changes them before the message is answered. The same payload is not queued twice
  for one rank: a parcel that is sent again costs no memory.

**Receiving**

- What `receive` returns is the receiver's: it stays as it is, whatever the sender does afterwards.
- Where there are keys, only messages from keys that were admitted are received, and `looks_only` says whether the
  last one came from a key that may look and no more.

**Threads and ends**

- Only the thread that owns a transport calls it, save for `wake`.
- `close` may be called again, and in any state. After it `send` returns False, `receive` returns None, and
  `connect` and `wait` raise `TransportError`.
- Errors are `TransportError` (the address, or the machine) and `SettingsError` (what was asked for), and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gossip.endpoint import Endpoint
from gossip.errors import GossipError
from gossip.values.buffers import Buffer

__all__ = ["Transport", "TransportError"]


class TransportError(GossipError):
    """A transport cannot listen or connect: the address or the machine is at fault, not the protocol."""


class Transport(Protocol):
    """What the driver needs; see the module for what is promised."""

    @property
    def endpoint(self) -> Endpoint:
        """Where others reach this one."""

    @property
    def looks_only(self) -> bool:
        """Whether the sender of the message that was received last may look, and no more."""

    def admit(self, key: bytes, *, looks_only: bool = False) -> None:
        """Let the bearer of a public key in from now on, as a member or to look."""

    def connect(self, rank: int, endpoint: Endpoint, key: bytes | None = None) -> None:
        """Make a rank reachable, or reachable somewhere else."""

    def reconnect(self, rank: int) -> None:
        """Connect anew to where a rank is; what was in flight there may be lost. Unknown ranks stay unknown."""

    def disconnect(self, rank: int) -> None:
        """Forget a rank and all that was queued for it."""

    def send(self, rank: int, frames: Sequence[Buffer], ordered: bool = False) -> bool:
        """Send without blocking; return False if the message was dropped right away.

        What is sent ``ordered`` goes behind what was sent so before.

        Nobody changes the buffers before the message is answered. The same payload, sent again to the same rank while
        the first copy has not left yet, is dropped: it is in flight.
        """

    def receive(self) -> Sequence[Buffer] | None:
        """Return a message that has arrived, or None."""

    def wait(self, timeout: float | None) -> None:
        """Return when a message is there, `wake` was called, or ``timeout`` seconds have passed."""

    def wake(self) -> None:
        """End a `wait` from another thread."""

    def close(self) -> None:
        """Give everything back, at once, whatever state it is in."""
