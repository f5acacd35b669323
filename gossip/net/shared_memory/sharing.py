"""Which peers are sent references instead of values; see `gossip.net.shared_memory.owner`.

That a peer's address is on this host does not say that it can read our memory: it may run as another user, in another
container, or behind a tunnel. So it is asked. The question names a place on a board, a file in memory that others may
write to, and a random number; who can write the number there can read our memory as well. Until then it is sent the
values.

A reference may get lost, and nobody says so. Its parcel is then sent again, for want of an answer: first as a reference
once more, along with a new question. If that is not answered within a second values are sent from then on, until
it is; and whatever is sent a third time is sent as it is.
"""

from __future__ import annotations

import os
import secrets
import struct
import time
from collections.abc import Callable

from gossip.endpoint import Endpoint
from gossip.net.shared_memory.owner import Reference, create, find

__all__ = ["Board", "Sharing", "is_near"]

_WORD = struct.Struct("<Q")
#: Places on a board. Each connection takes the next, and with this number an answer that is late finds nobody there.
_PLACES = 4096
#: Seconds between two questions, and for which one that was believed so far may leave a question unanswered.
_PAUSE = 1.0
#: References to the same values that are sent to one peer before the values are.
_ATTEMPTS = 2
#: References that one peer may not have read yet. The core keeps far below; beyond it values are sent, whose queue
#: ZeroMQ bounds.
_MANY = 1024


def is_near(here: Endpoint, there: Endpoint) -> bool:
    """Whether two endpoints may well be on one host; it is good enough to ask."""
    return there.is_loopback or there.host == here.host


class Board:
    """Where other processes write that they can read our memory."""

    def __init__(self, name: str) -> None:
        self._fd, self._mapping = create(name, _PLACES * _WORD.size)
        self._inode = os.fstat(self._fd).st_ino
        self._next = 0

    def place(self) -> int:
        """Return a place for one connection."""
        self._next += 1
        return self._next % _PLACES

    def question(self, place: int, number: int) -> bytes:
        """Return what asks to write the number to the place."""
        return Reference(os.getpid(), self._fd, self._inode, number, place).pack()

    def read(self, place: int) -> int:
        """Return what stands there."""
        number: int = _WORD.unpack_from(self._mapping, place * _WORD.size)[0]
        return number

    def close(self) -> None:
        """Take it down; calling it again does nothing."""
        if self._fd >= 0:
            self._mapping.close()
            os.close(self._fd)
            self._fd = -1


class Sharing:
    """What one peer is sent."""

    def __init__(self, board: Board, clock: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        self._clock = clock
        self._place = board.place()
        self._number = self._new_number()
        #: When it was asked last, and until when it is believed although it has not answered the latest question.
        self._asked_at = self._believed_until = -_PAUSE
        self._answered = False
        #: By address: the generation that was last referred to there, and how often.
        self._sent: dict[int, tuple[int, int]] = {}

    @property
    def works(self) -> bool:
        """Whether the peer can read our memory, by all we know."""
        if not self._answered:
            self._answered = self._board.read(self._place) == self._number
        return self._answered or self._clock() < self._believed_until

    def question(self) -> bytes | None:
        """Return what to ask the peer, if it is time to."""
        if self._answered or self._clock() < self._asked_at + _PAUSE:
            return None
        return self._board.question(self._place, self._number)

    def asked(self) -> None:
        """Take in that the question was sent."""
        self._asked_at = self._clock()

    def reference(self, address: int, length: int) -> bytes | None:
        """Return what to send instead of the values at an address, or None if they have to be sent."""
        reference = find(address, length) if self.works else None
        if reference is None:
            return None
        generation, count = self._sent.get(address, (0, 0))
        if generation != reference.mark:
            count = 0
        if count >= _ATTEMPTS:
            return None
        if len(self._sent) >= _MANY:
            self._forget()
            if len(self._sent) >= _MANY:
                return None
        self._sent[address] = reference.mark, count + 1
        if count and self._answered:
            self._doubt()
        return reference.pack()

    def _forget(self) -> None:
        """Forget what was sent and is used for something else by now."""
        self._sent = {
            address: sent
            for address, sent in self._sent.items()
            if (reference := find(address, 0)) is not None and reference.mark == sent[0]
        }

    def _doubt(self) -> None:
        self._number = self._new_number()
        self._answered = False
        self._asked_at = -_PAUSE
        self._believed_until = self._clock() + _PAUSE

    @staticmethod
    def _new_number() -> int:
        return 1 + secrets.randbelow(1 << 63)
