"""What is known of one member, and which of two statements about it counts.

Statements are merged in any order, any number of times, by everybody; so there is one total order, and the greatest
wins:

    1. the later life (`incarnation`) wins;
    2. within a life, more `refutations` win: only the accused counts them up;
    3. then the worse state: alive < suspect < dead < left;
    4. then endpoint and key, so that two processes with one name do not stay a matter of opinion.

SWIM's incarnation number is two numbers here. A new life costs its bearer all its mass, so a mere suspicion, of which
there are many under loss, is answered by a refutation, and only a death by a new life. A death that was declared in
ignorance of a refutation, by a peer that cannot hear, say, is believed by nobody who heard the refutation. Should the
one who declared it hear of it in the end, it says alive again, of the same life; its core has fenced that life
(`gossip.view.view`) and tells its bearer so.
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
    SLOW = 1  #: answers late: wait for it less, send it less. Never a reason to give it up, and never passed on
    SUSPECT = 2  #: did not answer somebody, who told; it may refute that
    DEAD = 3  #: did not refute in time; it takes a new life to come back
    LEFT = 4  #: said that it goes


@dataclass(frozen=True)
class Record:
    """A member: who, in which life, how it is, and where it can be reached."""

    rank: int
    incarnation: int = 0
    refutations: int = 0
    state: State = State.ALIVE
    #: ``host:port``
    endpoint: str = ""
    #: 40 characters, or none where the run is in the clear.
    key: str = ""

    @property
    def final(self) -> bool:
        """Whether this life is held for over."""
        return self.state >= State.DEAD

    @cached_property
    def precedence(self) -> tuple[int, int, int, str, str]:
        """The place of this statement in the order of all statements about the rank."""
        return (self.incarnation, self.refutations, int(self.state), self.endpoint, self.key)

    @cached_property
    def mark(self) -> int:
        """64 bits that tell statements apart; peers compare sums of them."""
        return xxhash.xxh3_64_intdigest(msgpack.packb((self.rank, self.precedence)))

    def beats(self, other: Record | None) -> bool:
        """Whether this statement counts rather than the other."""
        return other is None or self.precedence > other.precedence

    def same_process(self, other: Record) -> bool:
        """Whether both are reached at the same place with the same key."""
        return (self.endpoint, self.key) == (other.endpoint, other.key)

    def become(self, state: State) -> Record:
        """Return the same life in another state."""
        return replace(self, state=state)

    def wrong(self) -> str:
        """Return what is wrong with this record, if anything; types are right already."""
        if not 0 <= self.rank < RANK_LIMIT:
            return f"rank {self.rank}"
        if not 0 <= self.incarnation < LIFE_LIMIT or not 0 <= self.refutations < LIFE_LIMIT:
            return f"life {self.incarnation} with {self.refutations} refutations"
        if len(self.endpoint) > ENDPOINT_LIMIT:
            return f"an endpoint of {len(self.endpoint)} characters"
        if self.key and not (self.key.isascii() and valid_key(self.key.encode())):
            return f"{self.key!r:.50} as a public key"
        try:
            return "" if Endpoint.parse(self.endpoint).port else "port 0, where nobody can be reached"
        except SettingsError as error:
            return f"the endpoint {str(error)[:80]}"
