"""The settings of a connection: what each means, and what more or less of it costs."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gossip.errors import SettingsError

__all__ = ["Link"]


@dataclass(frozen=True)
class Link:
    """How a peer keeps up its connections, in seconds. The defaults suit a local network.

    Nothing here decides whether a peer is alive: that is for the view to tell. A connection that is given up is
    made anew, and no mass is lost by it.
    """

    #: The pause before a lost connection is tried again: at first, and at most; it doubles in between. Shorter finds a
    #: restarted peer sooner, longer spares a network on which many are gone: n peers knock n / ceiling times a second.
    reconnect_first: float = 0.05
    reconnect_ceiling: float = 2.0
    #: A connection over which nothing has come for so long is asked for a sign of life, by TCP, in whole seconds.
    keepalive: float = 2.0
    #: And is given up if none comes within this time, nor an acknowledgement of what was sent. Longer than the
    #: network may be gone without anybody minding; shorter frees what is queued for the dead sooner.
    keepalive_timeout: float = 10.0
    #: A connection that is not agreed on after so long is dropped: several round trips, and the time that a refused
    #: peer stays away before it asks again.
    handshake: float = 3.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) >= 0.001:
                raise SettingsError(f"{field.name} is a time of a millisecond or more: {getattr(self, field.name)}")
        if self.reconnect_first > self.reconnect_ceiling:
            raise SettingsError(
                f"reconnect_first is at most reconnect_ceiling: {self.reconnect_first}, {self.reconnect_ceiling}"
            )
