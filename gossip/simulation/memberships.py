"""Many memberships under simulated time: the real thing and its bytes, a network made of a heap.

Everything follows from the seed. A paused peer neither reads nor ticks until its pause is over, and then finds its
mail in the order of arrival, as a stopped process does. The layer above is as short as can be: a peer whose life is
over takes the next one at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gossip.membership.member_events import (
    Effect,
    Event,
    Joined,
    LifeOver,
    Received,
    Refused,
    Reincarnated,
    Send,
    StateChanged,
    Tick,
)
from gossip.membership.membership import Membership
from gossip.membership.membership_settings import MembershipSettings
from gossip.membership.record import Record
from topologies.draws import draw

__all__ = ["Conditions", "Swarm", "record_of"]


@dataclass(frozen=True)
class Conditions:
    """How the network treats messages."""

    loss: float = 0.0
    duplicate: float = 0.0
    #: The least and the most seconds that a message takes; in between evenly.
    delay: tuple[float, float] = (0.0001, 0.001)


@dataclass
class _Peer:
    membership: Membership
    running: bool = True
    paused_until: float = 0.0
    wake_at: float = -1.0
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Change:
    """Something that a peer came to believe."""

    at: float
    observer: int
    effect: StateChanged | LifeOver | Refused | Joined


def record_of(rank: int, incarnation: int = 0, key: str = "") -> Record:
    """Return the record of a simulated peer, whose endpoint follows from its rank."""
    return Record(rank, incarnation, endpoint=f"peer-{rank}:5555", key=key)


@dataclass
class Swarm:
    """Peers by rank, and what is to happen when."""

    settings: MembershipSettings
    seed: int = 0
    conditions: Conditions = field(default_factory=Conditions)
    now: float = 0.0
    peers: dict[int, _Peer] = field(default_factory=dict)
    #: What all peers came to believe, in order.
    changes: list[Change] = field(default_factory=list)
    #: Whether nothing passes between two ranks.
    separates: Callable[[int, int], bool] | None = None
    events: int = 0
    _heap: list[tuple[float, int, int, int, bytes | None]] = field(default_factory=list)
    _serial: int = 0

    def start(self, ranks: Iterable[int], key: str = "") -> None:
        """Start peers that know each other, as `gossip launch` does."""
        known = {rank: record_of(rank, key=key) for rank in ranks}
        for record in known.values():
            self.add(record, known)

    def add(self, me: Record, known: Mapping[int, Record] | None = None) -> Membership:
        """Start one peer, in place of any that has its rank."""
        membership = Membership(me, self.settings, self.seed, self.now, known)
        self.peers[me.rank] = _Peer(membership)
        self._set_wake(me.rank)
        return membership

    def kill(self, rank: int) -> None:
        """Let a peer end without a word."""
        self.peers[rank].running = False

    def pause(self, rank: int, seconds: float) -> None:
        """Stop a peer, as SIGSTOP does."""
        self.peers[rank].paused_until = self.now + seconds

    def post(self, rank: int, event: Event) -> None:
        """Let an event happen at a peer now."""
        self._carry_out(rank, self.peers[rank].membership.handle(event, self.now))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> float:
        """Go on for so long, or until something holds (looked at ten times a second); return how long it took."""
        began = self.now
        end = began + seconds
        look_at = began
        while self._heap and self._heap[0][0] <= end:
            if until is not None and self._heap[0][0] >= look_at:
                if until():
                    return self.now - began
                look_at = self._heap[0][0] + 0.1
            self.now, _, rank, origin, body = heapq.heappop(self._heap)
            self._happen(rank, origin, body)
        self.now = end
        return self.now - began

    def running(self) -> list[Membership]:
        """Return the memberships of all peers that run."""
        return [peer.membership for peer in self.peers.values() if peer.running]

    def agreed(self) -> bool:
        """Whether all that run hold each other, in their present lives, for members, and nobody else."""
        running = self.running()
        truth = {one.me.rank: one.me.incarnation for one in running}
        if any(one.living != len(truth) for one in running):
            return False  # the usual case, told without a look at everybody
        return all({record.rank: record.incarnation for record in one.members()} == truth for one in running)

    def _happen(self, rank: int, origin: int, body: bytes | None) -> None:
        peer = self.peers.get(rank)
        if peer is None or not peer.running or (body is None and peer.wake_at != self.now):
            return
        if self.now < peer.paused_until:
            self._push(peer.paused_until, rank, origin, body)
            if body is None:
                peer.wake_at = peer.paused_until
            return
        self.events += 1
        event = Tick() if body is None else Received(origin, body)
        self._carry_out(rank, peer.membership.handle(event, self.now))

    def _carry_out(self, rank: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(rank, effect)
                continue
            self.changes.append(Change(self.now, rank, effect))
            membership = self.peers[rank].membership
            if isinstance(effect, LifeOver) and membership.me.incarnation <= effect.incarnation:
                self.post(rank, Reincarnated(effect.incarnation + 1))
        self._set_wake(rank)

    def _send(self, origin: int, sent: Send) -> None:
        peer = self.peers[origin]
        peer.messages += 1
        peer.bytes += len(sent.body)
        self._serial += 1
        bits = draw(self.seed, 3, self._serial)
        if self.separates is not None and self.separates(origin, sent.rank):
            return
        if (bits & 0xFFFF) < 0x10000 * self.conditions.loss:
            return
        least, most = self.conditions.delay
        self._push(self.now + least + (most - least) * (bits >> 32) / 2**32, sent.rank, origin, sent.body)
        if ((bits >> 16) & 0xFFFF) < 0x10000 * self.conditions.duplicate:
            late = self.now + least + 3 * (most - least) * (draw(bits) / 2**64)
            self._push(late, sent.rank, origin, sent.body)

    def _set_wake(self, rank: int) -> None:
        peer = self.peers[rank]
        deadline = peer.membership.deadline
        at = -1.0 if deadline is None else max(self.now, deadline)
        if at != peer.wake_at and self.now >= peer.paused_until:
            peer.wake_at = at
            if at >= 0:
                self._push(at, rank, -1, None)

    def _push(self, at: float, rank: int, origin: int, body: bytes | None) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (at, self._serial, rank, origin, body))
