"""Who is probed, who helps, and what an answer or its absence means.

    each interval   judge the last probe, then ping the next member of the round
    no answer       after the learned timeout: ask `helpers` others to ping it, too, and ping it again, and again
                    after twice the time: a lost message must not become a suspicion, of which the whole swarm hears
    an ack          from it or through a helper, or any other sign of life: it lives
    nothing         by the end of the interval: accuse it

A helper that gets no answer itself says so (`Nack`): who misses the nacks as well is probably the one that is
unwell, and stretches its own times (`gossip.membership.health`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gossip.arrivals import Estimate
from gossip.membership.bodies import Ack, Errand, Nack, Ping
from gossip.membership.health import Health
from gossip.membership.membership_settings import MembershipSettings
from gossip.membership.opinions import Opinions
from gossip.membership.post import Post
from gossip.membership.timers import Timers

__all__ = ["Probes"]

#: Errands that are run at a time; who asks for more is told at once that there was no answer.
_ERRANDS = 256


@dataclass
class _Probe:
    rank: int
    timeout: float
    #: How long until it is pinged again.
    patience: float
    #: When it was pinged, by sequence: an answer tells which of them arrived, and how long that took.
    pings: dict[int, float] = field(default_factory=dict)
    helpers: int = 0
    #: The helpers that got no answer either.
    nacks: set[int] = field(default_factory=set)
    #: By an ack, or by any other sign of life.
    answered: bool = False
    acknowledged: bool = False
    #: Whether the time of the answer tells anything: not if we slept.
    timed: bool = True


class Probes:
    """The probe under way, and the errands for others."""

    def __init__(self, opinions: Opinions, post: Post, settings: MembershipSettings, timers: Timers) -> None:
        self._opinions = opinions
        self._post = post
        self._settings = settings
        self._timers = timers
        self._trips = Estimate()
        self._probe: _Probe | None = None
        self._sequence = 0
        #: By our own sequence: for whom, and by which sequence of theirs.
        self._errands: dict[int, tuple[int, int]] = {}
        self.health = Health(settings.health_limit)

    @property
    def timeout(self) -> float:
        """How long an answer takes at most, as far as we know, while all is well."""
        return max(self._settings.timeout_floor, self._trips.deadline(self._settings.timeout_ceiling))

    def next_sequence(self) -> int:
        """Return a number that no other ping of ours has."""
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
        """Let others try, once, and try again ourselves, since the answer is late."""
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
        """Ping somebody for another peer."""
        if not self._opinions.table.lives(errand.target) or len(self._errands) >= _ERRANDS:
            self._post.say(origin, Nack(errand.sequence))
            return
        sequence = self.next_sequence()
        self._errands[sequence] = origin, errand.sequence
        self._timers.set("nack", now + self.timeout, sequence)
        self._timers.set("errand", now + self._settings.interval, sequence)
        self._post.say(errand.target, Ping(sequence))

    def no_answer_yet(self, sequence: int) -> None:
        """Say that an errand has had no answer so far; it may still have one."""
        origin, theirs = self._errands[sequence]
        self._post.say(origin, Nack(theirs))

    def end_errand(self, sequence: int) -> None:
        """Forget an errand."""
        self._errands.pop(sequence, None)
        self._timers.drop("nack", sequence)
        self._timers.drop("errand", sequence)

    def acknowledged(self, origin: int, sequence: int, now: float) -> None:
        """Take in an answer to one of our pings."""
        probe = self._probe
        if sequence in self._errands:
            asker, theirs = self._errands[sequence]
            self.end_errand(sequence)
            self._post.say(asker, Ack(theirs))
        elif probe is not None and sequence in probe.pings and not probe.acknowledged:
            probe.answered = probe.acknowledged = True
            self.health.better()
            if origin == probe.rank and probe.timed:
                taken = now - probe.pings[sequence]
                self._trips.add(taken)
                self._opinions.answered(origin, late=taken > probe.timeout)

    def not_acknowledged(self, origin: int, sequence: int) -> None:
        """Take in that a helper got no answer: at least the helper hears us, and we hear it."""
        if self._probe is not None and sequence in self._probe.pings:
            self._probe.nacks.add(origin)

    def heard(self, rank: int) -> None:
        """Take in a sign of life: an answer in all but its time."""
        if self._probe is not None and rank == self._probe.rank:
            self._probe.answered = True

    def slept(self) -> None:
        """Take in that this peer was not called for a while: it is unwell, and no round trip tells anything."""
        self.health.worse()
        if self._probe is not None:
            self._probe.timed = False
