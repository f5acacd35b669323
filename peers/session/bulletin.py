"""What the peers publish beside mass: statements that grow, and can be merged in any order.

A *topic* is something that all peers add to: which ranks are there, which part of the data set is done. Each peer sends
all it knows with every exchange, and merges what it hears. So what one peer knows all know soon, even if some peers die
or stall in between. In between, with steps without an exchange, it sends the topics that have grown lately.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgpack

from gossip.errors import SettingsError
from gossip.wire.limits import COUNT_LIMIT, NEWS_LIMIT
from peers.table.lives import LIVES_APART

__all__ = ["Agreement", "Bulletin", "RollCall", "Topic"]

Levels = dict[str, dict[int, int]]

_TOPICS_LIMIT = 64
#: The most different complaints about malformed news that the user is told of.
_COMPLAINTS_LIMIT = 64
#: Seconds for which a topic that has grown goes out with steps without an exchange; then all know it, or hear all.
_FRESH = 3.0
#: The most bytes of a roll call, which everybody merges and sends on: some 300 ranks, with room left for the data.
_ROLL_LIMIT = 9 << 10
#: The name in a roll call for the life of each rank.
_LIVES = "lives"


class Topic(Protocol):
    """Something that grows by merging."""

    def encode(self) -> bytes:
        """Return all that is known."""

    def merge(self, data: bytes) -> bool:
        """Take in what another knows; return whether some of it was new. Raise ValueError if it is malformed."""


class RollCall:
    """How far each rank has come in what all do once, or again and again: levels that only grow within a life.

    A rank that is started again begins anew: what its former process has done, this one has not.
    """

    def __init__(self, rank: int = 0, life: int = 0) -> None:
        """Begin.

        Args:
            rank: of this peer.
            life: the incarnation in which the process of this peer began.
        """
        self._rank = rank
        self._levels: Levels = {}
        #: The life to which the levels of a rank belong; 0 where there is none.
        self._lives: dict[int, int] = {rank: life} if life else {}
        #: How far a former process of this rank had come.
        self._former: dict[str, int] = {}
        #: The trainer's thread and the gossip thread both write.
        self._lock = threading.Lock()

    def reach(self, what: str, rank: int, level: int = 1) -> None:
        """Note that a rank has come to a level, unless it is known to be further."""
        with self._lock:
            self._levels = _higher(self._levels, {what: {rank: level}})

    def ranks(self, what: str, level: int = 1, members: Mapping[int, int] = MappingProxyType({})) -> set[int]:
        """Return the ranks that are known to have come to a level.

        Args:
            what: the point.
            level: how often it is come to.
            members: the present incarnation of each member. A member whose process is a later one than that which came
                to the level has not come. False deaths raise an incarnation by less than `LIVES_APART`.
        """
        levels, lives = self._levels.get(what, {}), self._lives
        return {
            rank
            for rank, reached in levels.items()
            if reached >= level and members.get(rank, 0) - lives.get(rank, 0) < LIVES_APART
        }

    def former(self, what: str) -> int:
        """Return how far a former process of this rank had come, as far as others say so."""
        return self._former.get(what, 0)

    def highest(self, what: str) -> int:
        """Return the highest level that anybody has come to."""
        return max(self._levels.get(what, {}).values(), default=0)

    def encode(self) -> bytes:
        """Return all that is known."""
        with self._lock:
            packed: bytes = msgpack.packb({**self._levels, _LIVES: self._lives} if self._lives else self._levels)
        return packed

    def merge(self, data: bytes) -> bool:
        """Take in what another knows."""
        heard = _unpacked(data)
        for what, levels in heard.items():
            limit = COUNT_LIMIT if what == _LIVES else 1 << 31
            if not isinstance(levels, dict) or not all(
                _is_count(rank, 1 << 31) and _is_count(value, limit) for rank, value in levels.items()
            ):
                raise ValueError("a roll call has something else than ranks and levels")
        lives = heard.pop(_LIVES, {})
        with self._lock:
            merged, living = self._merged(heard, lives)
            if (merged, living) == (self._levels, self._lives):
                return False
            if len(msgpack.packb({**merged, _LIVES: living})) > _ROLL_LIMIT:
                raise ValueError(f"a roll call has more than {_ROLL_LIMIT} bytes")
            self._levels, self._lives = merged, living
        return True

    def _merged(self, heard: Levels, lives: Mapping[int, int]) -> tuple[Levels, dict[int, int]]:
        """Return the levels and the lives, given those that were heard: of each rank, the latest life counts."""
        living = dict(self._lives)
        ours = self._lives.get(self._rank, 0)
        theirs = lives.get(self._rank, 0)
        if theirs != ours:
            for what, levels in heard.items():
                if self._rank in levels:
                    self._former[what] = max(levels[self._rank], self._former.get(what, 0))
        if theirs > ours:  # the clock went back since the last start
            living[self._rank] = theirs + 1
        ranks = {rank for levels in heard.values() for rank in levels}
        later = {rank for rank in ranks - {self._rank} if lives.get(rank, 0) > self._lives.get(rank, 0)}
        stale = {rank for rank in ranks if lives.get(rank, 0) < living.get(rank, 0)}
        living |= {rank: lives[rank] for rank in later}
        return _higher(_without(self._levels, later), _without(heard, stale)), living


class Agreement:
    """Something that must be the same everywhere. Nothing is merged; a rank that differs is remembered."""

    def __init__(self, value: str, rank: int) -> None:
        self._value = value.encode()
        self._rank = rank
        #: A rank that has something else; None while all that was heard agrees.
        self.conflict: int | None = None

    def encode(self) -> bytes:
        """Return what it is here, and where that is."""
        return b"%d %b" % (self._rank, self._value)

    def merge(self, data: bytes) -> bool:
        """Compare."""
        rank, _, value = data.partition(b" ")
        if not rank.isdigit():
            raise ValueError("there is no rank in front of the value")
        if value != self._value:
            self.conflict = int(rank)
        return False


class Bulletin:
    """All topics of one peer. Heard in the gossip thread, read and added to in the trainer's."""

    def __init__(
        self,
        send: Callable[[bytes, bytes], None],
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without topics.

        Args:
            send: is called with all that this peer knows, for its neighbours, and with the topics that are fresh.
            warn: is called with a sentence that the user should read.
            clock: returns the time.
        """
        self._send = send
        self._warn = warn
        self._clock = clock
        self._topics: dict[str, Topic] = {}
        #: The topics that always change, and that nobody waits for.
        self._calm: set[str] = set()
        #: What each topic said last, and until when that is fresh.
        self._said: dict[str, tuple[bytes, float]] = {}
        #: What was heard of topics that this peer has not come to yet.
        self._early: dict[str, bytes] = {}
        #: Complaints so far: news come again with every step, and so does what is wrong with them.
        self._complaints: set[str] = set()
        self._changed = threading.Condition()

    def add(self, name: str, topic: Topic, *, calm: bool = False) -> None:
        """Take part in a topic.

        Args:
            name: of the topic.
            topic: what is said of it.
            calm: whether it always changes and nobody waits for it: then it is never fresh.
        """
        with self._changed:
            self._topics[name] = topic
            if calm:
                self._calm.add(name)
            if name in self._early:
                self._merge(name, self._early.pop(name))
        self.publish()

    def publish(self) -> None:
        """Pass on all that this peer knows: something has been added to it."""
        with self._changed:
            said = self._encoded()
            fresh = self._fresh(said)
            self._changed.notify_all()
        self._send(_packed(said), _packed(fresh) if fresh else b"")

    def body(self) -> bytes:
        """Return all that this peer knows, as neighbours get it."""
        with self._changed:
            return _packed(self._encoded())

    def _encoded(self) -> dict[str, bytes]:
        return {name: topic.encode() for name, topic in self._topics.items()}

    def _fresh(self, said: dict[str, bytes]) -> dict[str, bytes]:
        """Return the topics that have grown lately."""
        now = self._clock()
        for name, text in said.items():
            if name not in self._said or self._said[name][0] != text:
                self._said[name] = text, now + _FRESH
        return {name: text for name, text in said.items() if name not in self._calm and now < self._said[name][1]}

    def hear(self, body: bytes) -> None:
        """Take in what a neighbour knows, and pass it on if it is new."""
        try:
            heard = _unpacked(body)
            if not all(isinstance(data, bytes) for data in heard.values()):
                raise ValueError("a topic has no bytes")
        except ValueError as error:
            self._complain(f"malformed news were dropped: {error}")
            return
        grown = False
        with self._changed:
            for name, data in heard.items():
                if name in self._topics:
                    grown |= self._merge(name, data)
                else:
                    self._early[name] = data
                    if len(self._early) > _TOPICS_LIMIT:
                        del self._early[next(iter(self._early))]
            self._changed.notify_all()
        if grown:
            self.publish()

    def early(self) -> set[str]:
        """Return the topics that others have spoken of and this peer does not take part in."""
        with self._changed:
            return set(self._early)

    def remove(self, name: str) -> None:
        """Speak of a topic no more."""
        with self._changed:
            self._topics.pop(name, None)

    def wake(self) -> None:
        """Let a thread that waits look again."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Wait until something that was heard makes the predicate true; return whether it did in time."""
        with self._changed:
            return self._changed.wait_for(predicate, timeout)

    def _merge(self, name: str, data: bytes) -> bool:
        try:
            return self._topics[name].merge(data)
        except ValueError as error:
            self._complain(f"malformed news about {name} were dropped: {error}")
            return False

    def _complain(self, sentence: str) -> None:
        """Warn, once."""
        if sentence not in self._complaints and len(self._complaints) < _COMPLAINTS_LIMIT:
            self._complaints.add(sentence)
            self._warn(sentence)


def _packed(said: dict[str, bytes]) -> bytes:
    """Return the news with these topics."""
    body: bytes = msgpack.packb(said)
    if len(body) > NEWS_LIMIT:
        raise SettingsError(f"{', '.join(said)}: these news take {len(body)} bytes, and {NEWS_LIMIT} is the limit")
    return body


def _unpacked(data: bytes) -> dict[str, Any]:
    try:
        heard = msgpack.unpackb(data, strict_map_key=False, max_array_len=0, max_ext_len=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ValueError(f"not msgpack: {error!r:.80}") from None
    if not isinstance(heard, dict) or len(heard) > _TOPICS_LIMIT or not all(isinstance(name, str) for name in heard):
        raise ValueError(f"not a map of at most {_TOPICS_LIMIT} names")
    return heard


def _higher(one: Levels, other: Levels) -> Levels:
    """Return the higher level of each rank."""
    merged = {what: dict(levels) for what, levels in one.items()}
    for what, levels in other.items():
        known = merged.setdefault(what, {})
        for rank, level in levels.items():
            known[rank] = max(level, known.get(rank, 0))
    return merged


def _without(levels: Levels, ranks: set[int]) -> Levels:
    """Return the levels of the other ranks."""
    if not ranks:
        return levels
    return {what: {rank: one for rank, one in known.items() if rank not in ranks} for what, known in levels.items()}


def _is_count(value: object, limit: int) -> bool:
    return type(value) is int and 0 <= value < limit
