"""The record of one member, and the order that decides which of two statements about it counts.

All peers merge statements in any order and any number of times. So there is one total order, and the greatest statement
wins:

    1. the later life (`incarnation`) wins;
    2. within a life, more `refutations` win: only the accused member increases them;
    3. then the worse state: alive < suspect < dead < left;
    4. then endpoint and key, so that all peers agree even about two processes with one rank.

SWIM's incarnation number is two numbers here. A new life costs a peer all its mass. So a suspicion, which is frequent
under loss, is answered by a refutation, and only a death is answered by a new life. A peer may declare a death without
knowing of a refutation, for example because it receives nothing. Peers that know the refutation do not believe that
death. If the peer that declared it learns of the refutation later, it believes that life to be alive again. But its
core has fenced the life (`gossip.view.view`), and tells the member so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import msgpack
import xxhash

from gossip.endpoint import Endpoint
from gossip.errors import SettingsError
from gossip.keys import valid_key

__all__ = ["ENDPOINT_LIMIT", "LIFE_LIMIT", "RANK_LIMIT", "Record", "State"]

#: Numbers from the wire stay below these.
RANK_LIMIT = 1 << 31
LIFE_LIMIT = 1 << 53
#: No endpoint is longer: a name of 253 characters and a port.
ENDPOINT_LIMIT = 260


class State(IntEnum):
    """A member as one peer sees it."""

    ALIVE = 0  #: answers
    SLOW = 1  #: answers late: wait less for it, and send less to it. Never a step towards death, and never passed on
    SUSPECT = 2  #: did not answer some peer, which told others; the member may refute that
    DEAD = 3  #: did not refute in time; it needs a new life to return
    LEFT = 4  #: said that it leaves


@dataclass(frozen=True)
class Record:
    """A member: its rank, life, state and endpoint."""

    rank: int
    incarnation: int = 0
    refutations: int = 0
    state: State = State.ALIVE
    #: ``host:port``
    endpoint: str = ""
    #: 40 characters, or empty if the run is not encrypted.
    key: str = ""

    @property
    def final(self) -> bool:
        """Whether this life has ended: the member is dead or has left."""
        return self.state >= State.DEAD

    @cached_property
    def precedence(self) -> tuple[int, int, int, str, str]:
        """The position of this statement in the order of all statements about the rank."""
        return (self.incarnation, self.refutations, int(self.state), self.endpoint, self.key)

    @cached_property
    def mark(self) -> int:
        """64 bits that distinguish statements; peers compare sums of them."""
        return xxhash.xxh3_64_intdigest(msgpack.packb((self.rank, self.precedence)))

    def beats(self, other: Record | None) -> bool:
        """Whether this statement wins over the other."""
        return other is None or self.precedence > other.precedence

    def same_process(self, other: Record) -> bool:
        """Whether both have the same endpoint and key."""
        return (self.endpoint, self.key) == (other.endpoint, other.key)

    def become(self, state: State) -> Record:
        """Return the same life in another state."""
        return replace(self, state=state)

    def wrong(self) -> str:
        """Return what is not valid in this record, or an empty text. The types have been checked already."""
        if not 0 <= self.rank < RANK_LIMIT:
            return f"rank {self.rank}"
        if not 0 <= self.incarnation < LIFE_LIMIT or not 0 <= self.refutations < LIFE_LIMIT:
            return f"life {self.incarnation} with {self.refutations} refutations"
        if len(self.endpoint) > ENDPOINT_LIMIT:
            return f"an endpoint of {len(self.endpoint)} characters"
        if self.key and not (self.key.isascii() and valid_key(self.key.encode())):
            return f"{self.key!r:.50} as a public key"
        try:
            return "" if Endpoint.parse(self.endpoint).port else f"port 0 in {self.endpoint}, which cannot be reached"
        except SettingsError as error:
            return f"the endpoint {str(error)[:80]}"
