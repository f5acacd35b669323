"""Probes of members, their helpers, and the meaning of an answer or of its absence.

    each interval   judge the last probe, then ping the next member of the round
    no answer       after the learned timeout: ask `helpers` others to ping it as well, and ping it again, and again
                    after twice the time: a lost message must not become a suspicion, which the whole swarm hears of
    an ack          from it or through a helper, or any other sign of life: it lives
    nothing         by the end of the interval: accuse it

A helper that gets no answer says so (`Nack`). A peer that does not even receive the nacks is probably overloaded
itself, and stretches its own times (`gossip.membership.health`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gossip.arrivals import Estimate
from gossip.membership.bodies import Errand, Nack, Ping, ProbeAck
from gossip.membership.health import Health
from gossip.membership.membership_settings import MembershipSettings
from gossip.membership.opinions import Opinions
from gossip.membership.post import Post
from gossip.membership.timers import Timers

__all__ = ["Probes"]

#: The most errands at a time; a request beyond that gets a nack at once.
_ERRANDS = 256


@dataclass
class _Probe:
    rank: int
    timeout: float
    #: Seconds until the member is pinged again.
    patience: float
    #: The times of the pings, by sequence: an answer shows which ping arrived, and how long that took.
    pings: dict[int, float] = field(default_factory=dict)
    helpers: int = 0
    #: The helpers that got no answer either.
    nacks: set[int] = field(default_factory=set)
    #: Whether the member answered, by an ack or by any other sign of life.
    answered: bool = False
    acknowledged: bool = False
    #: Whether the time of the answer is meaningful: not if this peer slept.
    timed: bool = True


class Probes:
    """The present probe, and the errands for others."""

    def __init__(self, opinions: Opinions, post: Post, settings: MembershipSettings, timers: Timers) -> None:
        self._opinions = opinions
        self._post = post
        self._settings = settings
        self._timers = timers
        self._trips = Estimate()
        self._probe: _Probe | None = None
        self._sequence = 0
        #: The errands, by this peer's sequence: the rank that asked, and its sequence.
        self._errands: dict[int, tuple[int, int]] = {}
        self.health = Health(settings.health_limit)

    @property
    def timeout(self) -> float:
        """The longest expected time of an answer while this peer is healthy."""
        return max(self._settings.timeout_floor, self._trips.deadline(self._settings.timeout_ceiling))

    def next_sequence(self) -> int:
        """Return a number that no other ping of this peer has."""
        self._sequence += 1
        return self._sequence

    def interval_over(self, now: float) -> None:
        """Judge the last probe and send the next one."""
        self._judge(now)
        stretch = self.health.stretch
        self._timers.set("probe", now + stretch * self._settings.interval)
        rank = self._opinions.table.next_to_probe()
        if rank is None:
            return
        timeout = stretch * self.timeout
        self._probe = _Probe(rank, timeout, timeout)
        self._ping(self._probe, now)

    def _ping(self, probe: _Probe, now: float) -> None:
        sequence = self.next_sequence()
        probe.pings[sequence] = now
        self._timers.set("again", now + probe.patience)
        self._post.say(probe.rank, Ping(sequence))

    def _judge(self, now: float) -> None:
        probe, self._probe = self._probe, None
        if probe is None or probe.answered or not self._opinions.table.lives(probe.rank):
            return
        self.health.worse(max(0, probe.helpers - len(probe.nacks)) if probe.helpers else 1)
        self._opinions.accuse(probe.rank, now)

    def try_again(self, now: float) -> None:
        """Ask helpers, once, and ping again, because the answer is late."""
        probe = self._probe
        if probe is None or probe.answered:
            return
        if len(probe.pings) == 1:
            (sequence,) = probe.pings
            helpers = self._opinions.table.some(self._settings.helpers, exclude=(probe.rank,))
            probe.helpers = len(helpers)
            for rank in helpers:
                self._post.say(rank, Errand(sequence, probe.rank))
        probe.patience *= 2
        self._ping(probe, now)

    def run_errand(self, origin: int, errand: Errand, now: float) -> None:
        """Ping a member for another peer."""
        if not self._opinions.table.lives(errand.target) or len(self._errands) >= _ERRANDS:
            self._post.say(origin, Nack(errand.sequence))
            return
        sequence = self.next_sequence()
        self._errands[sequence] = origin, errand.sequence
        self._timers.set("nack", now + self.timeout, sequence)
        self._timers.set("errand", now + self._settings.interval, sequence)
        self._post.say(errand.target, Ping(sequence))

    def no_answer_yet(self, sequence: int) -> None:
        """Send a nack for an errand: it has had no answer so far, and may still get one."""
        origin, theirs = self._errands[sequence]
        self._post.say(origin, Nack(theirs))

    def end_errand(self, sequence: int) -> None:
        """Forget an errand."""
        self._errands.pop(sequence, None)
        self._timers.drop("nack", sequence)
        self._timers.drop("errand", sequence)

    def acknowledged(self, origin: int, sequence: int, now: float) -> None:
        """Take in an answer to one of this peer's pings."""
        probe = self._probe
        if sequence in self._errands:
            asker, theirs = self._errands[sequence]
            self.end_errand(sequence)
            self._post.say(asker, ProbeAck(theirs))
        elif probe is not None and sequence in probe.pings and not probe.acknowledged:
            probe.answered = probe.acknowledged = True
            self.health.better()
            if origin == probe.rank and probe.timed:
                taken = now - probe.pings[sequence]
                self._trips.add(taken)
                self._opinions.answered(origin, late=taken > probe.timeout)

    def not_acknowledged(self, origin: int, sequence: int) -> None:
        """Take in that a helper got no answer: messages pass between this peer and the helper, at least."""
        if self._probe is not None and sequence in self._probe.pings:
            self._probe.nacks.add(origin)

    def heard(self, rank: int) -> None:
        """Take in a sign of life: it counts as an answer, but without a round trip."""
        if self._probe is not None and rank == self._probe.rank:
            self._probe.answered = True

    def slept(self) -> None:
        """Note that this peer was not called for a while: it is overloaded, and round trips are not meaningful."""
        self.health.worse()
        if self._probe is not None:
            self._probe.timed = False
