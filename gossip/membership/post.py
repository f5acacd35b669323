"""Sending: bodies with updates attached, as effects."""

from __future__ import annotations

from gossip.membership.bodies import Holdings, Said
from gossip.membership.body_codec import BODY_LIMIT, encode
from gossip.membership.member_events import Effect, SendBody
from gossip.membership.membership_settings import MembershipSettings
from gossip.membership.opinions import Opinions
from gossip.membership.record import Record, State

__all__ = ["Post"]

#: The bytes of a body besides its updates: the fields of the longest body, and their framing.
_ROOM = 1024


class Post:
    """Writes the messages of one peer."""

    def __init__(self, opinions: Opinions, settings: MembershipSettings, effects: list[Effect]) -> None:
        self._opinions = opinions
        self._settings = settings
        self._effects = effects

    def say(self, rank: int, said: Said, *, tell: int | None = None, to: Record | None = None) -> None:
        """Send a message to a rank, with as many news as fit.

        If this peer believes the receiver to be suspect or dead, that belief comes first, so that the receiver can
        refute it, or start a new life.

        Args:
            rank: the receiver.
            said: the message.
            tell: a rank whose record is included in any case.
            to: the record of the receiver, if its endpoint differs from the known one of the rank.
        """
        table, updates, settings = self._opinions.table, self._opinions.updates, self._settings
        record = table.get(rank if tell is None else tell)
        first: list[bytes] = []
        if record is not None and (tell is not None or record.state is not State.ALIVE):
            first = [self._opinions.packed(record)]
        budget = settings.piggyback_bytes - sum(map(len, first))
        leave_out = record.rank if first and record is not None else -1
        news = updates.take(budget, settings.repeats_for(table.living), leave_out) if len(updates) else []
        endpoint, key = ("", "") if to is None else (to.endpoint, to.key)
        self._effects.append(SendBody(rank, encode(self._opinions.me, said, first + news), endpoint, key))

    def hand_over(self, rank: int, records: list[Record]) -> None:
        """Send records, in as many bodies as they need; an empty body if there are none."""
        bodies: list[list[bytes]] = [[]]
        room = BODY_LIMIT - _ROOM
        for record in records:
            packed = self._opinions.packed(record)
            if len(packed) > room:
                bodies.append([])
                room = BODY_LIMIT - _ROOM
            bodies[-1].append(packed)
            room -= len(packed)
        for updates in bodies:
            self._effects.append(SendBody(rank, encode(self._opinions.me, Holdings(), updates)))
