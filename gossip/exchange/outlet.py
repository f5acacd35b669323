"""The one way out of a core: effects, in the order in which they are to be carried out, and their history."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gossip import events
from gossip.events import Effect
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Message, Parcel, Pass, Roll, Shown

__all__ = ["Outlet"]

#: Entries of the history.
_REMEMBERED = 64


class Outlet:
    """Collects the effects of one core, or carries each out as it arises."""

    def __init__(self, codec: WireCodec) -> None:
        #: Turns messages into frames, and back.
        self.codec = codec
        #: Carries out each effect as it arises, so that the first parcel leaves before the second is copied. It must
        #: not call back. Without one, `taken` returns them.
        self.sink: Callable[[Effect], None] | None = None
        self._effects: list[Effect] = []
        self._kinds: list[type] = []
        #: Types and addresses only: a frame kept here would keep its memory.
        self._history: deque[tuple[float, type, Sequence[Address | type]]] = deque(maxlen=_REMEMBERED)

    def emit(self, effect: Effect) -> None:
        """Let an effect out."""
        self._kinds.append(type(effect))
        (self._effects.append if self.sink is None else self.sink)(effect)

    def send(self, message: Message, endpoint: str = "", key: str = "") -> None:
        """Let a message out: to where its destination is known to be, or to an endpoint."""
        insist = isinstance(message, Roll | Shown)
        ordered = isinstance(message, Parcel | Pass)
        self.emit(events.Send(message.destination, self.codec.encode(message), endpoint, key, insist, ordered))

    def note(self, message: Message, now: float) -> None:
        """Remember that a message came."""
        self._history.append((now, type(message), (message.origin, message.destination)))

    def taken(self, event: type, now: float) -> list[Effect]:
        """Remember what an event led to, and return the effects that no sink has carried out."""
        self._history.append((now, event, self._kinds))
        effects, self._effects, self._kinds = self._effects, [], []
        return effects

    def history(self) -> list[str]:
        """Return the recent events, oldest first, as an `InvariantError` shows them; addresses as rank#incarnation."""
        lines = []
        for now, what, details in self._history:
            said = [one.__name__ if isinstance(one, type) else f"{one.rank}#{one.incarnation}" for one in details]
            lines.append(f"{now:.6f} {what.__name__} {' '.join(said)}")
        return lines
