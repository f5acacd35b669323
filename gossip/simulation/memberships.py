"""Many memberships under simulated time: the real state machine and its bytes, with a heap of events as the network.

All results follow from the seed. A paused peer neither reads nor ticks until its pause ends, and then reads its
messages in the order of arrival, as a stopped process does. The layer above is minimal: a peer whose life has ended
starts the next one at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gossip.membership.member_events import (
    BodyReceived,
    Effect,
    Event,
    Joined,
    JoinRefused,
    LifeOver,
    MemberTick,
    NextLife,
    SendBody,
    StateChanged,
)
from gossip.membership.membership import Membership
from gossip.membership.membership_settings import MembershipSettings
from gossip.membership.record import Record
from topologies.draws import draw

__all__ = ["Conditions", "MembershipSwarm", "record_of"]


@dataclass(frozen=True)
class Conditions:
    """How the network treats messages."""

    loss: float = 0.0
    duplicate: float = 0.0
    #: The least and the largest delay of a message in seconds; delays are drawn evenly between them.
    delay: tuple[float, float] = (0.0001, 0.001)


@dataclass
class _SimulatedPeer:
    membership: Membership
    running: bool = True
    paused_until: float = 0.0
    wake_at: float = -1.0
    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Change:
    """A change of what a peer believes about a member."""

    at: float
    observer: int
    effect: StateChanged | LifeOver | JoinRefused | Joined


def record_of(rank: int, incarnation: int = 0, key: str = "") -> Record:
    """Return the record of a simulated peer; its endpoint follows from its rank."""
    return Record(rank, incarnation, endpoint=f"peer-{rank}:5555", key=key)


@dataclass
class MembershipSwarm:
    """Peers by rank, and a heap of future events."""

    settings: MembershipSettings
    seed: int = 0
    conditions: Conditions = field(default_factory=Conditions)
    now: float = 0.0
    peers: dict[int, _SimulatedPeer] = field(default_factory=dict)
    #: The changes of what peers believe, in order.
    changes: list[Change] = field(default_factory=list)
    #: Whether nothing passes between two ranks.
    separates: Callable[[int, int], bool] | None = None
    events: int = 0
    _heap: list[tuple[float, int, int, int, bytes | None]] = field(default_factory=list)
    _serial: int = 0

    def start(self, ranks: Iterable[int], key: str = "") -> None:
        """Start peers that know each other, like `gossip launch`."""
        known = {rank: record_of(rank, key=key) for rank in ranks}
        for record in known.values():
            self.add(record, known)

    def add(self, me: Record, known: Mapping[int, Record] | None = None) -> Membership:
        """Start one peer; it replaces any peer of the same rank."""
        membership = Membership(me, self.settings, self.seed, self.now, known)
        self.peers[me.rank] = _SimulatedPeer(membership)
        self._set_wake(me.rank)
        return membership

    def kill(self, rank: int) -> None:
        """End a peer without any message."""
        self.peers[rank].running = False

    def pause(self, rank: int, seconds: float) -> None:
        """Stop a peer for a while, as SIGSTOP does."""
        self.peers[rank].paused_until = self.now + seconds

    def post(self, rank: int, event: Event) -> None:
        """Deliver an event to a peer now."""
        self._carry_out(rank, self.peers[rank].membership.handle(event, self.now))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> float:
        """Run for some seconds, or until a condition holds (checked ten times a second); return the seconds it took."""
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
        """Return the memberships of all running peers."""
        return [peer.membership for peer in self.peers.values() if peer.running]

    def agreed(self) -> bool:
        """Whether the members in every running peer's view are exactly the running peers, in their present lives."""
        running = self.running()
        truth = {one.me.rank: one.me.incarnation for one in running}
        if any(one.living != len(truth) for one in running):
            return False  # the usual case, found without looking at every peer
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
        event = MemberTick() if body is None else BodyReceived(origin, body)
        self._carry_out(rank, peer.membership.handle(event, self.now))

    def _carry_out(self, rank: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendBody):
                self._send(rank, effect)
                continue
            self.changes.append(Change(self.now, rank, effect))
            membership = self.peers[rank].membership
            if isinstance(effect, LifeOver) and membership.me.incarnation <= effect.incarnation:
                self.post(rank, NextLife(effect.incarnation + 1))
        self._set_wake(rank)

    def _send(self, origin: int, sent: SendBody) -> None:
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
