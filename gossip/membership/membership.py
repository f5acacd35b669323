"""Membership of one peer, without a coordinator, a socket, a clock or a thread: SWIM with the extensions of Lifeguard.

Theory of operation. Each peer holds a record of every rank that it has heard of. In each interval it probes one member
(`probes`). A member that answers neither the peer nor its helpers becomes *suspect*, and all peers are told. A suspect
that does not refute in time is *dead*. Statements are merged by one total order (`record`), so all peers come to the
same belief:

    alive   --no answer------------> suspect     the accuser tells others; they may confirm, which shortens the time
    suspect --refutation-----------> alive       only by the suspect, which counts its refutations
    suspect --timeout--------------> dead        the core takes back its parcels in flight to it, and fences this life
    any     --Leave----------------> left        said by the peer that leaves
    dead, left --a later life------> alive       the peer learns that its life has ended (`LifeOver`), starts another
    alive  <--late, in time--------> slow        the view of one peer; never passed on, never a step towards death

News travel as updates on probes and answers, on messages of the layer above (`piggyback`, `absorb`), and, while there
are any, in separate messages to a few random members. Peers find missed news by comparing digests of their tables with
a random member now and then. They find the other side of a partition by sending messages to dead members.

A peer that was not called when its deadline was due was asleep: stopped, suspended, or without CPU time. It then knows
nothing about the others. So all its own deadlines are postponed by the time that it slept, and a little longer, for the
messages that wait.

Effects are in the order in which they arose. `handle` raises `Rejected` for a body that is not valid, and then changes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gossip.errors import InvariantError, Reason, Rejected
from gossip.membership import bodies
from gossip.membership import member_events as events
from gossip.membership.admission import Admission
from gossip.membership.bodies import Envelope, Said, Update
from gossip.membership.body_codec import BODY_LIMIT, decode, decode_updates, encode_updates
from gossip.membership.member_events import Effect, Event
from gossip.membership.membership_settings import MembershipSettings
from gossip.membership.opinions import Opinions
from gossip.membership.post import Post
from gossip.membership.probes import Probes
from gossip.membership.record import LIFE_LIMIT, Record, State
from gossip.membership.table import MEMBERS_LIMIT
from gossip.membership.timers import Timers
from topologies.draws import draw

__all__ = ["Membership"]

#: The bytes of the header of an array of updates.
_HEADER = 5


class Membership:
    """The beliefs of one peer about all others. Pass events to `handle`, and call it again no later than `deadline`."""

    def __init__(
        self,
        me: Record,
        settings: MembershipSettings,
        seed: int,
        now: float,
        known: Mapping[int, Record] | None = None,
    ) -> None:
        """Make the membership of the peer ``me``.

        Args:
            me: this peer's own record.
            settings: see `MembershipSettings`.
            seed: the seed of the run; the draws of each peer also depend on its rank.
            now: the time.
            known: the members that this peer knows from the start, in a launched swarm. Other peers use `AskIn`.
        """
        wrong = me.wrong()
        if wrong:
            raise ValueError(f"the record of this peer, rank {me.rank}, is not valid: {wrong}")
        self._settings = settings
        self._now = now
        self._effects: list[Effect] = []
        self._timers = Timers()
        keys = (seed, me.rank)
        self._opinions = Opinions(me, known or {}, settings, draw(*keys), self._timers, self._effects)
        self._post = Post(self._opinions, settings, self._effects)
        self._probes = Probes(self._opinions, self._post, settings, self._timers)
        self._admission = Admission(self._opinions, self._post, settings, self._timers, self._probes.next_sequence)
        #: The highest life of this peer that others declared dead, and the rank that said so (-1: none to answer).
        self._over, self._over_by = -1, -1
        #: Whether this peer has compared tables since it was admitted; true from the start if it did not join.
        self._compared = True
        self._gone = False
        self._grace_at = now - settings.interval
        if me.incarnation and set(known or ()) - {me.rank}:
            # The others know this peer's endpoint, and not in which life they will find it.
            self._opinions.updates.add(me.rank, self._opinions.packed(me))
        # The first probes are spread: otherwise peers that start together would always probe at the same time.
        sync = settings.sync_for(self._opinions.table.living)
        for number, (what, every) in enumerate(
            (("probe", settings.interval), ("sync", sync), ("revisit", settings.revisit_interval))
        ):
            self._timers.set(what, now + every * (draw(*keys, number) / 2**64))

    # Beliefs

    @property
    def me(self) -> Record:
        """The record of this peer."""
        return self._opinions.me

    @property
    def next_life(self) -> int:
        """The first life of this rank that no peer has declared dead."""
        return max(self.me.incarnation, self._over) + 1

    @property
    def health(self) -> int:
        """The health score of this peer: 0 is healthy."""
        return self._probes.health.score

    @property
    def living(self) -> int:
        """The number of members, including this peer."""
        return self._opinions.table.living

    @property
    def has_news(self) -> bool:
        """Whether there are updates about members to pass on."""
        return len(self._opinions.updates) > 0

    def members(self) -> list[Record]:
        """Return the records of all members whose lives have not ended, including this peer, by rank."""
        living = [self._opinions.seen(record) for record in self._opinions.table if not record.final]
        return sorted(living, key=lambda record: record.rank)

    def records(self) -> list[Record]:
        """Return all records, including those of dead and departed members, by rank."""
        return sorted((self._opinions.seen(record) for record in self._opinions.table), key=lambda record: record.rank)

    def record(self, rank: int) -> Record | None:
        """Return the record of a rank, dead or alive; None if there is none."""
        record = self._opinions.table.get(rank)
        return None if record is None else self._opinions.seen(record)

    # Events in, effects out

    @property
    def deadline(self) -> float | None:
        """The time at which a `MemberTick` is due, if no event comes before; None: never."""
        return self._timers.earliest

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Handle an event, and return its effects in order."""
        now = max(now, self._now)
        envelope = None
        if isinstance(event, events.BodyReceived):
            envelope = decode(event.body, event.origin)
            self._check(event.origin, envelope)
        if self._gone:
            return []
        self._notice_sleep(now)
        match event:
            case events.BodyReceived(origin=origin) if envelope is not None:
                self._receive(origin, envelope, now)
            case events.MemberTick():
                self._run_timers(now)
            case events.LifeSign(rank, incarnation):
                self._heard(rank, incarnation, 0, now)
            case events.ReportSlow(rank, slow):
                self._opinions.refuse_to_wait(rank, slow)
            case events.AskIn(contacts):
                self._join(contacts, now)
            case events.NextLife(incarnation):
                self._reincarnated(incarnation, now)
            case events.MemberLeave():
                self._leave(now)
        return self._done(now)

    def heard(self, rank: int, incarnation: int, now: float) -> list[Effect]:
        """Note that some message came from a member: the event `LifeSign`, as a call, for callers with many of them."""
        return self.handle(events.LifeSign(rank, incarnation), now)

    def piggyback(self, budget: int) -> bytes:
        """Return news, at most ``budget`` bytes, for a message to some member; empty if there are none."""
        budget = min(budget, BODY_LIMIT) - _HEADER
        repeats = self._settings.repeats_for(self._opinions.table.living)
        silent = budget <= 0 or self._gone or self._admission.asking
        updates = [] if silent else self._opinions.updates.take(budget, repeats)
        return encode_updates(updates) if updates else b""

    def absorb(self, body: bytes, now: float) -> list[Effect]:
        """Take in the news from another peer's `piggyback`."""
        updates = decode_updates(body)
        self._check_room(updates, None)
        if self._gone:
            return []
        now = max(now, self._now)
        self._notice_sleep(now)
        self._learn(updates, -1, now)
        return self._done(now)

    def _done(self, now: float) -> list[Effect]:
        self._now = now
        # A newcomer sends only its request: if its life were known before, it would be refused as used up.
        living = self._opinions.table.living > 1 and not self._gone and not self._admission.asking
        if living and len(self._opinions.updates) and not self._timers.pending("spread"):
            self._timers.set("spread", now + self._settings.spread_interval)
        effects = list(self._effects)
        self._effects.clear()
        return effects

    def validate_state(self) -> None:
        """Raise an `InvariantError` if the state contradicts itself."""
        wrong = self._opinions.wrong()
        if not wrong and not self._gone and not self._timers.pending("probe"):
            wrong = "no timer for the next probe is set"
        if wrong:
            raise InvariantError(f"the membership of rank {self.me.rank} contradicts itself: {wrong}")

    # Time

    def _notice_sleep(self, now: float) -> None:
        due = self._timers.earliest
        slept = now - due if due is not None else 0.0
        if slept <= self._settings.timeout_floor:
            return
        if now - self._grace_at >= self._settings.interval:  # otherwise a peer that is always late would never act
            self._grace_at = now
            slept += self._settings.timeout_floor
        self._timers.put_off(slept)
        self._opinions.put_off(slept)
        self._probes.slept()

    def _run_timers(self, now: float) -> None:
        while timer := self._timers.pop(now):
            what, about = timer
            if what in ("probe", "sync", "revisit") and self._admission.asking:
                self._timers.set(what, now + self._settings.interval)  # this peer is not a member yet
            elif what == "probe":
                self._probes.interval_over(now)
            elif what == "again":
                self._probes.try_again(now)
            elif what == "nack":
                self._probes.no_answer_yet(about)
            elif what == "errand":
                self._probes.end_errand(about)
            elif what == "suspect":
                self._opinions.give_up(about, now)
            elif what == "spread":
                for rank in self._opinions.table.some(self._settings.fanout) if len(self._opinions.updates) else ():
                    self._post.say(rank, bodies.MemberNews())
            elif what == "sync":
                self._sync(now)
            elif what == "revisit":
                self._revisit(now)
            elif what == "ask":
                self._admission.ask(now)
            else:
                assert what == "check", what
                self._admission.unanswered(about, now)

    def _sync(self, now: float) -> None:
        """Compare tables with a random member."""
        every = self._settings.sync_for(self._opinions.table.living) if self._compared else self._settings.interval
        self._timers.set("sync", now + every)
        if not self._compared and self._opinions.table.living == 1 and not self._admission.asking:
            self._admission.ask_again(now)  # the member that admitted this peer is gone, and others may not know it
        for rank in self._opinions.table.some(1):
            self._say_digest(rank, answer=False)

    def _revisit(self, now: float) -> None:
        """Send a message to a dead member: it may have been cut off."""
        self._timers.set("revisit", now + self._settings.revisit_interval)
        rank = self._opinions.table.a_dead_one()
        if rank is not None:
            self._post.say(rank, bodies.Ping(self._probes.next_sequence()))

    def _say_digest(self, rank: int, *, answer: bool) -> None:
        self._post.say(rank, bodies.Digest(self._opinions.table.digest(), answer))

    # Receiving

    def _check(self, origin: int, envelope: Envelope) -> None:
        if origin == self.me.rank and not isinstance(envelope.said, bodies.JoinRequest | bodies.Taken | bodies.Behind):
            raise Rejected(Reason.STRANGER, f"a message from this peer's own rank {origin}", origin)
        self._check_room(envelope.updates, origin)
        if isinstance(envelope.said, bodies.JoinRequest):
            self._admission.check(_newcomer(origin, envelope.incarnation, envelope.said))

    def _check_room(self, updates: tuple[Update, ...], origin: int | None) -> None:
        table = self._opinions.table
        if len(table) + len(updates) > MEMBERS_LIMIT:
            new = {update.record.rank for update in updates if table.get(update.record.rank) is None}
            if len(table) + len(new) > MEMBERS_LIMIT:
                raise Rejected(Reason.OVERSIZED, f"updates about more than {MEMBERS_LIMIT} ranks", origin)

    def _receive(self, origin: int, envelope: Envelope, now: float) -> None:
        said = envelope.said
        if isinstance(said, bodies.JoinRequest):
            if not self._admission.asking:
                self._admission.asked(_newcomer(origin, envelope.incarnation, said), now)
            return
        changed = self._learn(envelope.updates, origin, now)
        if isinstance(said, bodies.Welcome | bodies.Behind | bodies.Taken):
            self._answered_ask(origin, said, now)
            return
        self._heard(origin, envelope.incarnation, envelope.refutations, now)
        if self._admission.asking:
            if self._compared or not isinstance(said, bodies.Holdings):
                return  # not a member yet: a ping to this rank is for another process
            self._admission.settled()  # a member answered an earlier request after all
        match said:
            case bodies.Ping(sequence):
                self._post.say(origin, bodies.ProbeAck(sequence))
            case bodies.ProbeAck(sequence):
                self._probes.acknowledged(origin, sequence, now)
                self._admission.acknowledged(sequence)
            case bodies.Nack(sequence):
                self._probes.not_acknowledged(origin, sequence)
            case bodies.Errand():
                self._probes.run_errand(origin, said, now)
            case bodies.Digest(sums, answer):
                self._compare(origin, sums, answer, now)
            case bodies.Holdings():
                if changed:  # there may be more differences, here or elsewhere: compare with another member soon
                    self._timers.sooner("sync", now + self._settings.interval)
                self._have_compared()

    def _compare(self, origin: int, sums: bytes, answer: bool, now: float) -> None:
        equal = sums == self._opinions.table.digest()
        # This peer's records where the tables differ. There may be none: then only the other has news.
        differing = [] if equal else self._opinions.table.differing(sums)
        if equal and answer:
            self._have_compared()
        if differing or not answer:
            self._post.hand_over(origin, differing)
        if not equal and not answer:
            self._say_digest(origin, answer=True)
        if not equal:
            self._timers.sooner("sync", now + self._settings.interval)

    def _have_compared(self) -> None:
        if not self._compared:
            self._compared = True
            self._effects.append(events.Joined())

    def _heard(self, rank: int, incarnation: int, refutations: int, now: float) -> None:
        record = self._opinions.table.get(rank)
        if rank == self.me.rank or record is None:
            return
        if incarnation >= record.incarnation and not (record.final and incarnation == record.incarnation):
            self._probes.heard(rank)
        if self._opinions.heard(rank, incarnation, refutations, now):
            # A process that has lost its rank to another one is found where it was; only then can it know, and end.
            self._post.say(rank, bodies.MemberNews(), tell=rank, to=self._opinions.replaced(rank, incarnation))

    # Statements about this peer

    def _learn(self, updates: tuple[Update, ...], origin: int, now: float) -> bool:
        changed = False
        for update in updates:
            if update.record.rank == self.me.rank:
                self._learn_of_ourselves(update, origin, now)
            else:
                changed |= self._opinions.learn(update, now)
        return changed

    def _learn_of_ourselves(self, update: Update, origin: int, now: float) -> None:
        me, said = self.me, update.record
        if self._admission.asking or not said.beats(me):
            return  # before this peer is admitted, its rank may belong to another process
        if said.incarnation == me.incarnation and said.state is State.SUSPECT:
            if said.refutations + 1 < LIFE_LIMIT:
                self._probes.health.worse()
                self._opinions.put(replace(me, refutations=said.refutations + 1), now)
                for rank in update.accusers:
                    if rank != me.rank and self._opinions.table.lives(rank):
                        self._post.say(rank, bodies.MemberNews(), tell=me.rank)
        elif not said.final and not said.same_process(me):
            self._admission.settled()
            reason = f"rank {me.rank} is taken: {said.endpoint} has it in life {said.incarnation}"
            self._effects.append(
                events.JoinRefused(f"{reason}, and this peer, {me.endpoint}, in life {me.incarnation}")
            )
        else:
            self._end_life(said.incarnation, origin)

    def _end_life(self, incarnation: int, origin: int) -> None:
        if incarnation > self._over:
            self._over, self._over_by = incarnation, origin
            self._effects.append(events.LifeOver(incarnation))

    def _reincarnated(self, incarnation: int, now: float) -> None:
        if incarnation <= max(self.me.incarnation, self._over):
            raise ValueError(
                f"the new life {incarnation} must be later than life {max(self.me.incarnation, self._over)}"
            )
        self._opinions.put(replace(self.me, incarnation=incarnation, refutations=0, state=State.ALIVE), now)
        if self._admission.asking:
            self._admission.ask(now, self._over_by)
        elif self._over_by >= 0:  # that rank may have been cut off: compare tables, since both sides have news
            self._say_digest(self._over_by, answer=False)

    # Joining and leaving

    def _join(self, contacts: Sequence[Record], now: float) -> None:
        wrong = [f"contact {contact.rank}: {contact.wrong()}" for contact in contacts if contact.wrong()]
        if wrong or not contacts:
            raise ValueError("; ".join(wrong) or "there are no contacts to ask: give the endpoint of a member")
        self._admission.join(contacts, now)

    def _leave(self, now: float) -> None:
        self._gone = True
        self._opinions.put(self.me.become(State.LEFT), now)
        self._timers.clear()
        living = self._opinions.table.living
        for rank in self._opinions.table.some(self._settings.repeats_for(living)):
            self._post.say(rank, bodies.MemberNews(), tell=self.me.rank)

    def _answered_ask(self, origin: int, said: Said, now: float) -> None:
        if not self._admission.asking:
            return
        match said:
            case bodies.Welcome(incarnation) if incarnation == self.me.incarnation:
                self._admission.settled()
                self._compared = False
                self._say_digest(origin, answer=False)
                self._timers.set("sync", now + self._settings.interval)
            case bodies.Behind(incarnation) if incarnation >= self.me.incarnation:
                self._end_life(incarnation, origin)
            case bodies.Taken(reason):
                self._admission.settled()
                self._effects.append(events.JoinRefused(reason))


def _newcomer(rank: int, incarnation: int, ask: bodies.JoinRequest) -> Record:
    return Record(rank, incarnation, 0, State.ALIVE, ask.endpoint, ask.key)
