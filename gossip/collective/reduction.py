"""Averages of all members' vectors, one after the other, among the members that are present.

Theory of operation. Rounds are numbered. A *group* (`gossip.collective.group`) works at a round, under its digest and
by a plan that follows from the number of members that take part (`gossip.collective.reduction_plans`). In most rounds
members exchange only the plan's chunks. When a member dies, leaves, joins, begins or ceases to take part, all change to
the new group and say where they stand (`Enter`). Then the round begins again among the present members, with the
vectors that all of them still have.

    apart     --all have said where they stand-->  formed
    formed    --behind by a result-------------->  fetching it, then `Reduced` as if it had been computed here
    formed    --no state of this group---------->  fetching it, then `Synchronized`
    formed    --the trainer's `Reduce`---------->  working: chunks come and go until all cells are sums
    working   --all cells are there------------->  formed, in the next round, with `Reduced`
    any       --the group changes--------------->  apart; the unfinished work is dropped
    any       --the trainer's `Withdraw`-------->  looking on, until no member lacks this result; then `Withdrawn`

**All use the same average.** A member finishes a round in a group only if every member that takes part has contributed
its vector. A member that has changed to another group contributes nothing to the former one. Suppose that one member
has finished a round in a group, and others have not when the group changes. Either that member belongs to the next
group as well. It has contributed nothing there, so no member can finish the round there by computing: all take its
result, which it keeps until the next round has ended. Or it does not belong to it. Then it is dead, and the others
compute the round among themselves. By the end of a round all members have finished the one before. So no member is more
than one round behind, and it is enough to keep one result.

**No member leaves with a result that others lack.** A member that withdraws stays until all members that take part have
said, in a group in which it looks on, that they are past the round that it has finished. Otherwise only its own replica
would have made the last step.

Nothing is acknowledged. A member that waits and receives nothing asks for what is missing, after ``first`` seconds and
then at doubling intervals up to ``ceiling``. Chunks are copies, so those that come twice, late or for another group do
no harm. All members wait for the slowest, which is inherent in the method, but only for members in the view.

**NaN and infinity** in one vector make the average not finite, in the same places for all members, since all have the
same bits. `Reduced` says so, and all can skip the step.

**Compression.** With a codec the group has no plan. Instead each part has an owner (`gossip.collective.coded`), and
each peer keeps residuals (`gossip.collective.residuals`), which change only when a round has ended. If a peer fetches a
result, the values of its last attempt are part of that result: it has made no other attempt since.

Memory: sent and kept cells take at most the vectors of this round and of the last. Chunks that came early take at most
``early_bytes``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress

from gossip import events
from gossip.collective.attempt import Outgoing, piece_elements
from gossip.collective.attempts import AnyAttempt, Attempts
from gossip.collective.early import Early
from gossip.collective.fetch import AT_A_TIME, Fetch, state_part, state_parts
from gossip.collective.finished import Finished
from gossip.collective.group import Group, GroupSeat, Seats, Stand
from gossip.collective.interface import Call, Said
from gossip.errors import InvariantError, Rejected
from gossip.values.blocks import Values
from gossip.wire.messages import Address, Chunk, Enter, Lack, Subject

__all__ = ["Reduction"]


class Reduction:
    """One peer's part in the reductions."""

    def __init__(self, me: Address, attempts: Attempts, *, first: float, ceiling: float, early_bytes: int) -> None:
        """Take part from the first `Synchronize` on.

        Args:
            me: this peer. Founders, in their life 0, wait for each other from the start.
            attempts: makes the attempts at rounds.
            first: seconds until this peer asks for what is missing.
            ceiling: the largest such interval, in seconds.
            early_bytes: the most bytes of chunks that come before their round.
        """
        self._me = me
        self._attempts = attempts
        self._first, self._ceiling = first, ceiling
        self._seats = Seats()
        self._seat = GroupSeat(me.incarnation, 0, me.incarnation == 0)
        #: Whether this peer is silent: a founder that has not come to its first `Synchronize` yet.
        self._mute = me.incarnation == 0
        self._stand = Stand(0, False, False, 0)
        self._members: Mapping[int, int] | None = None
        self._group: Group | None = None
        #: The last `Enter` of every member: it may be about a group that this peer reaches later.
        self._heard: dict[int, Enter] = {}
        #: Whether this peer has the group's state, and may work at its round.
        self._ready = False
        self._entering = self._withdrawing = False
        self._fetch: Fetch | None = None
        self._pending: Values | None = None
        self._lossy = 0
        #: Whether the trainer makes its step, so that there is no state to hand out: from `Reduced` to its next call.
        self._moving = False
        self._attempt: AnyAttempt | None = None
        self._last: Finished | None = None
        #: The state of the coming round, as bytes, if a member has asked for it or this peer has just taken it over.
        self._state: bytes | None = None
        self._state_asked: dict[int, Lack] = {}
        self._early = Early(early_bytes)
        #: The latest round of which others have asked this peer for chunks.
        self._wanted = -1
        self._out: deque[Said | events.Effect] = deque()
        self._again_at = 0.0
        self._interval = first

    @property
    def round(self) -> int:
        """The round that this peer comes to next."""
        return self._stand.round

    @property
    def deadline(self) -> float | None:
        """The time at which this peer asks for what is missing."""
        group = self._group
        if self._mute or group is None:
            return None
        waits = not group.formed or self._fetch is not None or self._attempt is not None or self._withdrawing
        return self._again_at if waits else None

    @property
    def called(self) -> bool:
        """Whether others have begun the average that this peer comes to next, and wait for it."""
        return self._pending is None and (self._wanted == self.round or self._early.has(self.round))

    # The trainer

    def handle(self, call: Call, now: float) -> None:
        """Take in a request of the trainer."""
        del now
        if not isinstance(call, events.Offer):
            self._moving = False
        match call:
            case events.Synchronize(number, seal):
                if not self._stand.veteran:
                    self._stand = Stand(number, False, False, seal)
                    self._members = None  # any earlier `Enter` of this peer was about another state
                self._mute, self._entering, self._withdrawing = False, True, False
                self._take_part(True)
            case events.Withdraw():
                self._mute, self._withdrawing = False, True
                self._take_part(False)
            case events.Reduce(values, lossy):
                if self._pending is not None or not self._seat.active or values.ndim != 1 or not values.size:
                    raise InvariantError(
                        f"Reduce with a vector of shape {values.shape}: it must be a flat vector, from a peer that "
                        "takes part, and only one at a time"
                    )
                self._pending, self._lossy = values, lossy
            case events.Offer(number, state):
                if not self._moving and number == self.round:
                    self._state = state

    def _take_part(self, active: bool) -> None:
        if self._seat.active != active:
            self._seat = GroupSeat(self._seat.life, self._seat.stint + 1, active)
            self._members = None

    # Messages of others

    def receive(self, message: Said, me: Address, members: Mapping[int, int], now: float) -> None:
        """Take in a message of a member."""
        group = self._gathered(me, members, now)
        if message.origin.rank not in group.members:
            return
        match message:
            case Enter():
                if self._seats.learn(
                    message.origin.rank, GroupSeat(message.origin.incarnation, message.stint, message.active)
                ):
                    self._heard[message.origin.rank] = message
                    self._members = None
                    self._gathered(me, members, now).hear(message)
                if not message.answers:
                    self._say_where_we_stand(message.origin, answers=True)
            case Lack():
                self._give(group, message)
            case Chunk(subject=Subject.PLAN):
                if message.digest == group.digest:
                    self._take(group, message, now)
            case Chunk():
                if message.digest == group.digest and self._fetch is not None and self._fetch.take(message):
                    self._progress(now)

    def _give(self, group: Group, lack: Lack) -> None:
        """Send what a member lacks, again or for the first time."""
        if lack.digest != group.digest and not self._mute:
            self._say_where_we_stand(lack.origin, answers=True)
            if lack.subject is not Subject.PLAN:
                return
        wanted = lack.wanted[:AT_A_TIME]
        if lack.subject is Subject.PLAN:
            if lack.digest == group.digest:
                self._wanted = max(self._wanted, lack.round)
            attempt = self._attempt if lack.digest == group.digest and lack.round == self.round else None
            places = group.places
            if attempt is None and self._last is not None and self._last.key == (lack.round, lack.digest):
                attempt, places = self._last.attempt, self._last.places
            if attempt is not None and lack.origin.rank in places:
                place = places.index(lack.origin.rank)
                for step, cell in wanted:
                    found = attempt.again(place, step, cell)
                    if found is not None:
                        self._out.append(self._chunk(lack.origin, lack.round, lack.digest, found))
        elif lack.subject is Subject.RESULT:
            if self._last is not None and self._last.round == lack.round:
                for _, index in wanted:
                    part = self._last.part(index)
                    if part is not None:
                        count = self._last.count
                        self._out.append(
                            Chunk(self._me, lack.origin, lack.subject, lack.round, lack.digest, count, index, part)
                        )
        elif lack.subject is Subject.STATE and lack.round == self.round and self._stand.veteran and not self._moving:
            self._state_asked[lack.origin.rank] = lack
            if self._state is None:
                self._out.append(events.StateWanted(self.round))

    def _take(self, group: Group, chunk: Chunk, now: float) -> None:
        """Take in a chunk of this group's plan, or keep it until this peer reaches its round."""
        sender = chunk.origin.rank
        if self._attempt is not None and chunk.round == self.round:
            if sender in group.places:
                place = group.places.index(sender)
                try:
                    self._out.extend(
                        self._chunks(group, self._attempt.arrived(place, chunk.step, chunk.index, chunk.values))
                    )
                except Rejected as error:
                    raise Rejected(error.reason, error.detail, sender) from None
                self._progress(now)
        elif self.round <= chunk.round <= self.round + 1:
            self._early.keep(chunk)

    def _progress(self, now: float) -> None:
        self._interval = self._first
        self._again_at = now + self._first

    # Work

    def work(self, me: Address, members: Mapping[int, int], now: float) -> Iterator[Said | events.Effect]:
        """Do all that can be done now."""
        group = self._gathered(me, members, now)
        yield from self._said()
        if self._mute:
            return
        if group.formed and not self._ready and self._fetch is None and group.active:
            self._see_what_lacks(group)
        yield from self._catch_up(group)
        if self._ready and self._entering:
            self._entering = False
            yield events.Synchronized(self.round, None)
        if self._ready and self._pending is not None and self._attempt is None:
            yield from self._begin(group, self._pending, now)
        if self._attempt is not None and self._attempt.finished:
            yield from self._finish(group, self._attempt)
        yield from self._hand_state_out()
        if self._withdrawing and not self._needed_by(group):
            self._withdrawing = False
            yield events.Withdrawn()
        deadline = self.deadline
        if deadline is not None and deadline <= now:
            yield from self._again(group, now)

    def _said(self) -> Iterator[Said | events.Effect]:
        while self._out:
            yield self._out.popleft()

    def _gathered(self, me: Address, members: Mapping[int, int], now: float) -> Group:
        """Return the present group. If it is new, drop the work for the former one, and say where this peer stands."""
        if self._group is not None and members is self._members and me == self._me:
            return self._group
        if me != self._me:  # a new life: no other member shares its state
            self._me = me
            self._seat = GroupSeat(me.incarnation, self._seat.stint + 1, self._seat.active)
            self._stand = Stand(self.round, False, False, 0)
            self._last = None
        self._members = members
        self._seats.learn(me.rank, self._seat)
        group = Group(me, members, self._seats)
        if self._group is not None and self._group.digest == group.digest and me.rank in self._group.stands:
            return self._group
        self._group = group
        self._ready, self._fetch, self._attempt = False, None, None
        self._early.clear()
        self._state_asked.clear()
        self._progress(now)
        if not self._mute:
            group.stands[me.rank] = self._stand
            for address in group.silent:
                self._say_where_we_stand(address)
        for rank in group.members:
            if rank in self._heard:
                group.hear(self._heard[rank])
        return group

    def _say_where_we_stand(self, to: Address, *, answers: bool = False) -> None:
        group = self._group
        if group is None or self._mute:
            return
        # Members that take part draw conclusions from this peer's position when it came to this group. A member that
        # looks on learns from the present position that it may leave.
        stand = group.stands[self._me.rank] if to.rank in group.places else self._stand
        self._out.append(Enter(self._me, to, group.digest, self._seat.stint, self._seat.active, *stand, answers))

    def _needed_by(self, group: Group) -> list[Address]:
        """Return the members that may lack the result of the last round that this peer has finished."""
        if self._last is None:
            return []
        behind = [
            group.members[rank]
            for rank, stand in group.stands.items()
            if rank in group.places and stand.veteran and self._heard[rank].round <= self._last.round
        ]
        return group.silent + behind

    def _see_what_lacks(self, group: Group) -> None:
        verdict = group.verdict()
        assert verdict is not None, "this peer takes part"
        source, mine = group.stands[verdict.source], group.stands[self._me.rank]
        same = mine.round == verdict.round and mine.seal == source.seal != 0
        if self._me.rank in verdict.current or same:
            self._stand = Stand(verdict.round, True, mine.keeps, 0)
            self._ready = True
            return
        self._fetch = Fetch(Subject.STATE, verdict.source, verdict.round)
        values, keeper = self._pending, verdict.keeper
        if mine.veteran and mine.round == verdict.round - 1 and values is not None and keeper is not None:
            parts = -(-values.size // piece_elements(values.size, values.itemsize))
            self._fetch = Fetch(Subject.RESULT, keeper, mine.round, parts)

    def _catch_up(self, group: Group) -> Iterator[Said | events.Effect]:
        """Ask for the missing parts of a result or of the state, and take it over once it is complete."""
        fetch = self._fetch
        if fetch is None:
            return
        if not fetch.whole:
            yield from self._asked(group, fetch, fetch.next())
            return
        self._fetch = None
        parts = [fetch.parts[index] for index in range(len(fetch.parts))]
        if fetch.subject is Subject.STATE:
            self._state = b"".join(part.tobytes() for part in parts)
            self._stand = Stand(fetch.round, True, False, 0)
            self._last = None
            self._attempts.forget()
            self._ready, self._entering = True, False
            yield events.Synchronized(fetch.round, self._state)
        else:
            assert self._pending is not None
            divisor = self._attempts.divisor(fetch.step)
            finished = Finished.fetched(fetch.round, fetch.step, divisor, parts, self._pending.dtype)
            if finished.size != self._pending.size:
                raise InvariantError(f"a result of {finished.size} elements for a vector of {self._pending.size}")
            finite = finished.write(self._pending)
            self._ready = True
            yield self._over(finished, finite)
            for rank, stand in group.stands.items():
                if stand.keeps and rank not in group.places:
                    self._say_where_we_stand(group.members[rank], answers=True)
            yield from self._said()

    def _asked(self, group: Group, fetch: Fetch, indices: list[int]) -> Iterator[Lack]:
        if indices:
            wanted = tuple((0, index) for index in indices)
            to = group.members[fetch.source]
            yield Lack(self._me, to, fetch.subject, fetch.round, group.digest, wanted)

    def _begin(self, group: Group, values: Values, now: float) -> Iterator[Said | events.Effect]:
        n, place = len(group.places), group.places.index(self._me.rank)
        attempt = self._attempt = self._attempts.begin(n, place, values, self._lossy, (self._me.rank, self.round))
        self._progress(now)
        yield from self._chunks(group, attempt.start())
        for chunk in self._early.due(self.round):
            if chunk.origin.rank in group.places:
                with suppress(Rejected):  # this peer will ask for it again, and reject it then
                    place = group.places.index(chunk.origin.rank)
                    yield from self._chunks(group, attempt.arrived(place, chunk.step, chunk.index, chunk.values))

    def _chunks(self, group: Group, outgoing: Iterator[Outgoing]) -> Iterator[Chunk]:
        for out in outgoing:
            yield self._chunk(group.members[group.places[out.place]], self.round, group.digest, out)

    def _chunk(self, to: Address, number: int, digest: int, out: Outgoing) -> Chunk:
        return Chunk(self._me, to, Subject.PLAN, number, digest, out.step, out.cell, out.values)

    def _finish(self, group: Group, attempt: AnyAttempt) -> Iterator[events.Effect]:
        assert self._pending is not None
        finite = attempt.finish(self._pending)
        self._attempt = None
        yield self._over(Finished.computed(self.round, group.digest, group.places, attempt), finite)

    def _over(self, finished: Finished, finite: bool) -> events.Effect:
        self._last = finished
        self._attempts.over(finite)
        self._pending = self._state = None
        self._moving = True
        self._stand = Stand(finished.round + 1, True, True, 0)
        return events.Reduced(finished.round, finished.count, finite)

    def _hand_state_out(self) -> Iterator[Chunk]:
        if self._state is None:
            return
        total = state_parts(self._state)
        for lack in self._state_asked.values():
            for _, index in lack.wanted[:AT_A_TIME]:
                if index < total:
                    body = state_part(self._state, index)
                    yield Chunk(self._me, lack.origin, Subject.STATE, lack.round, lack.digest, total, index, body)
        self._state_asked.clear()

    def _again(self, group: Group, now: float) -> Iterator[Said | events.Effect]:
        """Ask for what has not arrived."""
        self._interval = min(self._ceiling, 2 * self._interval)
        self._again_at = now + self._interval
        if not group.formed or self._withdrawing:
            for address in group.silent or self._needed_by(group):
                self._say_where_we_stand(address)
            yield from self._said()
        elif self._fetch is not None:
            yield from self._asked(group, self._fetch, self._fetch.again())
        elif self._attempt is not None:
            wanted: dict[int, list[tuple[int, int]]] = {}
            for place, step, cell in self._attempt.lacking():
                if len(wanted.setdefault(place, [])) < AT_A_TIME:
                    wanted[place].append((step, cell))
            for place, parts in wanted.items():
                to = group.members[group.places[place]]
                yield Lack(self._me, to, Subject.PLAN, self.round, group.digest, tuple(parts))
