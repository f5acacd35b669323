"""This peer's beliefs about each member, their changes, and the news about them.

Statements of all peers are merged by the order of `gossip.membership.record`. A statement that changes a belief here is
passed on. A suspect becomes dead after a time (`gossip.membership.suspicion`).

*Slow* is this peer's own finding, from the lateness that the layer above measures or from late answers to probes. It is
kept beside the records. Two peers may differ about it, because it depends on the path as much as on the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gossip.membership.bodies import Update
from gossip.membership.body_codec import pack_update
from gossip.membership.member_events import Effect, StateChanged
from gossip.membership.membership_settings import MembershipSettings
from gossip.membership.record import Record, State
from gossip.membership.suspicion import Suspicion
from gossip.membership.table import Table
from gossip.membership.timers import Timers
from gossip.membership.updates import Updates

__all__ = ["Opinions"]

#: The number of late answers in a row to this peer's probes after which a member is slow.
_LATE_ANSWERS = 2


class Opinions:
    """The table, the suspicions, and the resulting news."""

    def __init__(
        self,
        me: Record,
        known: Mapping[int, Record],
        settings: MembershipSettings,
        seed: int,
        timers: Timers,
        effects: list[Effect],
    ) -> None:
        self.table = Table(me, known, seed)
        self.updates = Updates()
        self._me = me.rank
        self._settings = settings
        self._timers = timers
        self._effects = effects
        self._suspicions: dict[int, Suspicion] = {}
        self._reported_slow: set[int] = set()
        #: Late answers in a row, by rank.
        self._late: dict[int, int] = {}
        #: The time at which a member was last told this peer's belief about it.
        self._told: dict[int, float] = {}
        #: The last record of a process whose rank another process has now, by that rank. It may still run.
        self._replaced: dict[int, Record] = {}

    @property
    def me(self) -> Record:
        """The record of this peer."""
        record = self.table.get(self._me)
        assert record is not None
        return record

    def seen(self, record: Record) -> Record:
        """Return the record as the layer above sees it."""
        slow = record.rank in self._reported_slow or self._late.get(record.rank, 0) >= _LATE_ANSWERS
        return record.become(State.SLOW) if slow and record.state is State.ALIVE else record

    def packed(self, record: Record) -> bytes:
        """Return a record of the table in the form in which it is sent."""
        suspicion = self._suspicions.get(record.rank)
        return pack_update(record, tuple(suspicion.accusers) if suspicion else ())

    def learn(self, update: Update, now: float) -> bool:
        """Take in a statement about another member; return whether it changed a belief."""
        record, before = update.record, self.table.get(update.record.rank)
        newer = record.beats(before)
        if newer:
            self.put(record, now)
        elif before is None or record.precedence != before.precedence:
            return False
        suspicion = self._suspicions.get(record.rank)
        confirmed = suspicion is not None and suspicion.confirm(update.accusers)
        if suspicion is not None:
            self._timers.set("suspect", suspicion.ends_at, record.rank)
        if newer or confirmed:
            self.updates.add(record.rank, self.packed(record))
        return newer

    def put(self, record: Record, now: float) -> None:
        """Store a record of any member, pass it on, and tell the layer above if it looks different there."""
        rank, before = record.rank, self.table.get(record.rank)
        old = self.seen(before) if before is not None else None
        if self._suspicions.pop(rank, None) is not None:
            self._timers.drop("suspect", rank)
        if before is None or before.incarnation != record.incarnation or record.final:
            self._reported_slow.discard(rank)
            self._late.pop(rank, None)
            self._told.pop(rank, None)
        if before is not None and before.state is not State.LEFT and not before.same_process(record):
            self._replaced[rank] = before
        self.table.put(record)
        if record.state is State.SUSPECT:
            least = self._settings.suspicion_least(self.table.living)
            expected = min(self._settings.confirmations, self.table.living - 2)
            self._suspicions[rank] = Suspicion(now, least, self._settings.suspicion_spread * least, expected)
        self.updates.add(rank, self.packed(record))
        if rank != self._me:
            self._say_if_changed(record, old)

    def accuse(self, rank: int, now: float) -> None:
        """Suspect a member that answered neither this peer nor the helpers, or confirm the suspicion of others."""
        record = self.table.get(rank)
        if record is not None and not record.final:
            self.learn(Update(record.become(State.SUSPECT), (self._me,)), now)

    def give_up(self, rank: int, now: float) -> None:
        """Declare a suspect dead: its time has passed."""
        record = self.table.get(rank)
        if record is not None and record.state is State.SUSPECT:
            self.learn(Update(record.become(State.DEAD)), now)

    def heard(self, rank: int, incarnation: int, refutations: int, now: float) -> bool:
        """Note a sign of life; return whether the member should be told this peer's belief about it.

        A suspect remains a suspect until it refutes, since only it can convince the others. But its time starts again,
        and this peer no longer passes the suspicion on.
        """
        record = self.table.get(rank)
        if record is None:
            return False
        if record.state is State.ALIVE and (incarnation, refutations) <= (record.incarnation, record.refutations):
            return incarnation < record.incarnation and self._may_tell(rank, now)
        alive = replace(record, incarnation=incarnation, refutations=refutations, state=State.ALIVE)
        if self.learn(Update(alive), now):
            return False
        suspicion = self._suspicions.get(rank)
        if suspicion is not None and incarnation == record.incarnation:
            suspicion.since = now
            self._timers.set("suspect", suspicion.ends_at, rank)
            self.updates.drop(rank)
        return self._may_tell(rank, now)

    def replaced(self, rank: int, incarnation: int) -> Record | None:
        """Return the record of the process that had this life of a rank, if another process has the rank now."""
        former = self._replaced.get(rank)
        return former if former is not None and former.incarnation == incarnation else None

    def refuse_to_wait(self, rank: int, slow: bool) -> None:
        """Note that the layer above finds a member slow, or no longer slow."""
        record = self.table.get(rank)
        if record is not None and not record.final and rank != self._me:
            old = self.seen(record)
            (self._reported_slow.add if slow else self._reported_slow.discard)(rank)
            self._say_if_changed(record, old)

    def answered(self, rank: int, late: bool) -> None:
        """Note that a member answered this peer's probe, in time or late."""
        record = self.table.get(rank)
        if record is not None and (late or rank in self._late):
            old = self.seen(record)
            if late:
                self._late[rank] = self._late.get(rank, 0) + 1
            else:
                del self._late[rank]
            self._say_if_changed(record, old)

    def put_off(self, seconds: float) -> None:
        """Exclude the time in which this peer slept from all suspicions. The caller postpones the timers."""
        for suspicion in self._suspicions.values():
            suspicion.since += seconds

    def wrong(self) -> str:
        """Return a description of a contradiction, or an empty text."""
        suspects = {record.rank for record in self.table if record.state is State.SUSPECT}
        if suspects != self._suspicions.keys():
            return f"the suspects are {sorted(suspects)}, but there are suspicions of {sorted(self._suspicions)}"
        if any(not self._timers.pending("suspect", rank) for rank in suspects):
            return "a suspicion without a timer would never end"
        living = sum(not record.final for record in self.table)
        if living != self.table.living or self.me.state is State.SUSPECT:
            return (
                f"{self.table.living} members are counted as living, but {living} are; own state {self.me.state.name}"
            )
        return ""

    def _may_tell(self, rank: int, now: float) -> bool:
        if now - self._told.get(rank, -float("inf")) < self._settings.timeout_floor:
            return False  # the member was told a moment ago, and cannot have answered yet
        self._told[rank] = now
        return True

    def _say_if_changed(self, record: Record, old: Record | None) -> None:
        new = self.seen(record)
        if old is None or replace(new, refutations=0) != replace(old, refutations=0):
            self._effects.append(StateChanged(new, old))
