"""A look at a swarm from outside: ask one of its peers, get the picture it has of all."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from gossip.endpoint import Endpoint
from gossip.errors import GossipError, Rejected
from gossip.keys import KeyPair
from gossip.net.zmq_transport import ZmqTransport
from gossip.values.layout import Layout
from gossip.wire.frames import WireCodec
from gossip.wire.messages import ANYBODY, Address, Look, Shown

__all__ = ["Looker", "NothingShown"]

#: Seconds after which a look that was not answered is repeated.
_AGAIN = 0.5
#: Seconds between two tries while there is no connection yet.
_RETRY = 0.02
_THERE = 1


class NothingShown(GossipError):
    """Nobody answered."""


class Looker:
    """Somebody who looks at a swarm, again and again, through one of its peers."""

    def __init__(
        self,
        peer: Endpoint,
        *,
        bind: Endpoint,
        key: bytes | None = None,
        keys: KeyPair | None = None,
        insecure: bool = False,
    ) -> None:
        """Prepare to look.

        Args:
            peer: where the peer is.
            bind: where the answer is to come to.
            key: the peer's public key, if the swarm has keys.
            keys: a key pair that may look, if the swarm has keys.
            insecure: let the answer come from another machine without encryption.
        """
        admitted: Iterable[bytes] = () if key is None else (key,)
        self._peer = peer
        self._key = "" if keys is None else keys.public.decode()
        self._codec = WireCodec("look", Layout.uniform(1, 1, np.dtype(np.float32)))
        self._transport = ZmqTransport(bind, keys=keys, admitted=admitted, insecure=insecure, shared=False)
        self._transport.connect(_THERE, peer, key)

    def __enter__(self) -> Looker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Look no more."""
        self._transport.close()

    def look(self, timeout: float = 5.0) -> bytes:
        """Return what is shown; raise `NothingShown` if nothing is."""
        nobody, anybody = Address(ANYBODY, 0), Address(ANYBODY, 0)
        frames = self._codec.encode(Look(nobody, anybody, str(self._transport.endpoint), self._key))
        while self._received() is not None:
            pass  # what an earlier look that was repeated has left is old
        deadline = time.monotonic() + timeout
        again_at = 0.0
        while (now := time.monotonic()) < deadline:
            if now >= again_at:
                again_at = now + (_AGAIN if self._transport.send(_THERE, frames) else _RETRY)
            self._transport.wait(min(again_at, deadline) - time.monotonic())
            # After the wait, however late it is: who was held up meanwhile may well have its answer.
            shown = self._received()
            if shown is not None:
                return shown
        raise NothingShown(
            f"{self._peer} did not answer within {timeout:g} s. If the run is just starting, try again: a peer "
            "answers once its script has attached the model. Otherwise: is a peer there, can it reach "
            f"{self._transport.endpoint}, and "
            f"{'is the key one that may look' if self._key else 'does the swarm do without keys'}?"
        )

    def _received(self) -> bytes | None:
        while (frames := self._transport.receive()) is not None:
            try:
                message = self._codec.decode(frames)
            except Rejected:
                continue
            if isinstance(message, Shown):
                return message.body
        return None
