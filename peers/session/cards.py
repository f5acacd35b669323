"""How peers find each other at the start: each peer shows a card, and each gets the cards of all.

It happens once. The launcher, torchrun's store or the user's list of hosts are asked here and nowhere else; from then
on peers know each other.
"""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from gossip.endpoint import Endpoint
from gossip.errors import GossipError, SettingsError
from gossip.keys import valid_key

__all__ = ["Card", "CardTable", "Channel", "FixedTable", "RendezvousError"]


class RendezvousError(GossipError):
    """The others could not be found."""


@dataclass(frozen=True)
class Card:
    """Where a peer is reached, and by which key it is known."""

    rank: int
    endpoint: Endpoint
    key: bytes | None = None
    #: Where the rows of its replica meet, if it is the lead row.
    crew: Endpoint | None = None

    def __post_init__(self) -> None:
        if self.key is not None and not valid_key(self.key):
            raise SettingsError(
                f"rank {self.rank}: its key of {len(self.key)} bytes is not a CURVE key, 40 characters of Z85"
            )

    def encode(self) -> list[Any]:
        """Return the card as JSON takes it."""
        key = None if self.key is None else self.key.decode()
        return [self.rank, str(self.endpoint), key, *([] if self.crew is None else [str(self.crew)])]

    @classmethod
    def decode(cls, fields: Any) -> Card:
        """Read what `encode` returned."""
        try:
            rank, endpoint, key, *crew = fields
            place = Endpoint.parse(crew[0]) if crew else None
            return cls(int(rank), Endpoint.parse(endpoint), None if key is None else key.encode(), place)
        except (TypeError, ValueError, AttributeError) as error:
            raise RendezvousError(
                f"{fields!r:.200} is not a card: [rank, host:port, key or null, maybe host:port of its crew]"
            ) from error


class CardTable(Protocol):
    """Where cards are laid down and picked up."""

    def exchange(self, card: Card) -> dict[int, Card]:
        """Lay a card down and return all of them, by rank."""


class FixedTable:
    """The user's list of hosts: nothing needs to be exchanged."""

    def __init__(self, hosts: tuple[str, ...], public_keys: tuple[str, ...]) -> None:
        if public_keys and len(public_keys) != len(hosts):
            raise SettingsError(
                f"hosts has {len(hosts)} entries and public_keys has {len(public_keys)}: each host needs its key"
            )
        self._cards = {
            rank: Card(rank, Endpoint.parse(host), public_keys[rank].encode() if public_keys else None)
            for rank, host in enumerate(hosts)
        }

    def exchange(self, card: Card) -> dict[int, Card]:
        """Return the cards that were known beforehand."""
        return {**self._cards, card.rank: card}


class Channel:
    """The launcher's two file descriptors: JSON, a line at a time each way.

    The launcher is no coordinator: if it is gone, or stalled, its lines are lost and the peer goes on.
    """

    def __init__(self, descriptors: str) -> None:
        try:
            self._in, self._out = (int(number) for number in descriptors.split(","))
            os.set_blocking(self._in, False)
            os.set_blocking(self._out, False)
        except (ValueError, OSError) as error:
            raise SettingsError(
                f"GOSSIP_CHANNEL={descriptors!r} does not name two open file descriptors. A process that gossip launch "
                "or a swarm on Ray started can call peers.join() once"
            ) from error
        self._unread = b""
        #: Seconds to wait for the cards of the others.
        self.start_timeout = math.inf
        #: How ranks ended that had not attached a model; the others wait for them in vain.
        self._failed: dict[int, str] = {}

    def read(self, seconds: float = math.inf) -> dict[str, Any]:
        """Return the next line from the launcher; an empty one if none comes in time."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._in], [], [], None if left == math.inf else left)[0]:
                return {}
            data = os.read(self._in, 1 << 16)
            if not data:
                raise RendezvousError(f"the launcher ended before process {os.getpid()} could start as a peer")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def failed(self) -> dict[int, str]:
        """Return how ranks ended that had not attached a model, as far as the launcher has said so by now."""
        # A launcher that is gone says nothing more.
        with suppress(RendezvousError, OSError):
            while message := self.read(0.0):
                self._note(message)
        return self._failed

    def _note(self, message: Mapping[str, Any]) -> None:
        if "failed" in message:
            rank, how = message["failed"]
            self._failed[int(rank)] = str(how)

    def send(self, *, within: float = 0.0, **message: Any) -> bool:
        """Send the launcher a line; return False if it did not take the line within this number of seconds."""
        line = json.dumps(message).encode() + b"\n"
        if len(line) > select.PIPE_BUF:
            raise ValueError(f"a line of {len(line)} bytes could be torn apart: {select.PIPE_BUF} bytes is the limit")
        try:
            if within:
                select.select([], [self._out], [], within)
            return os.write(self._out, line) == len(line)
        except OSError:
            return False  # gone, or so far behind that the pipe is full

    def exchange(self, card: Card) -> dict[int, Card]:
        """Give the launcher the card and take all of them from it."""
        self.send(card=card.encode())
        deadline = time.monotonic() + self.start_timeout
        while True:
            message = self.read(max(0.0, deadline - time.monotonic()))
            self._note(message)
            if "cards" in message:
                return {one.rank: one for one in map(Card.decode, message["cards"])}
            if self._failed:
                rank, how = next(iter(self._failed.items()))
                raise RendezvousError(f"rank {rank} {how} before the swarm could start; see its log")
            if not message:
                raise RendezvousError(
                    f"the launcher did not introduce rank {card.rank} to the others within {self.start_timeout:g} s: "
                    "does it still run?"
                )

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self._in)
        os.close(self._out)
