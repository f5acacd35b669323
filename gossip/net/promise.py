"""What the trainer has asked the gossip thread for, and waits for at once or later."""

from __future__ import annotations

import threading

from gossip.events import Effect, Event

__all__ = ["Promise"]


class Promise:
    """An effect that the trainer waits for, now or later."""

    def __init__(self, event: Event, awaited: type[Effect]) -> None:
        self.event, self.awaited = event, awaited
        #: The effect, once it has come about; `Left` if the peer has left before.
        self.answer: Effect | None = None
        self._over = threading.Event()

    @property
    def done(self) -> bool:
        """Whether nothing is to be waited for any more."""
        return self._over.is_set()

    def end(self) -> None:
        """Let the trainer go on."""
        self._over.set()

    def wait(self, timeout: float | None) -> bool:
        """Wait; return whether it is done."""
        return self._over.wait(timeout)
