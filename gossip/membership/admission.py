"""Admission of newcomers, from both sides.

The newcomer asks its contacts in turn until one answers (`JoinRequest`). A member decides by its record of that rank:

    no record, or an earlier life that has ended          welcome
    an earlier life of the same process (it restarted)    welcome: the restart was faster than the detector
    the same life or a later one, which has ended or      behind: that life is used up, ask again with a later one
      belongs to the same process
    another process that still counts as living           ping it. If it answers: taken. If not: as if it were dead

A process that did not answer because it was stopped may go on later. Whoever hears from it then tells it, at its own
endpoint, who has its rank now, and it ends with an error.

Sequences start from 0 in each life, so a restarted process must not continue in its former life. It cannot always be
told apart from a newcomer whose welcome was lost, so both take a later life, which costs a newcomer nothing.

A newcomer answers no pings before it is welcome: otherwise it would answer for the present owner of its rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gossip.errors import Reason, Rejected
from gossip.membership.bodies import Behind, JoinRequest, Ping, Taken, Update, Welcome
from gossip.membership.membership_settings import MembershipSettings
from gossip.membership.opinions import Opinions
from gossip.membership.post import Post
from gossip.membership.record import Record
from gossip.membership.table import MEMBERS_LIMIT
from gossip.membership.timers import Timers

__all__ = ["Admission"]

#: Newcomers whose rank is checked at a time; the others have to ask again.
_CHECKS = 64


class Admission:
    """Requests of newcomers to this peer, and this peer's own request."""

    def __init__(
        self,
        opinions: Opinions,
        post: Post,
        settings: MembershipSettings,
        timers: Timers,
        next_sequence: Callable[[], int],
    ) -> None:
        self._opinions = opinions
        self._post = post
        self._settings = settings
        self._timers = timers
        self._next_sequence = next_sequence
        #: Newcomers whose rank seems to belong to another process, by the sequence of the ping to that process.
        self._checks: dict[int, Record] = {}
        self._contacts: Sequence[Record] = ()
        self._asked = 0
        #: Whether this peer is not a member yet.
        self.asking = False

    # The newcomer's side

    def join(self, contacts: Sequence[Record], now: float) -> None:
        """Ask the contacts, one after the other, until one answers."""
        self._contacts = contacts
        self.ask_again(now)

    def ask_again(self, now: float) -> None:
        """Ask the next contact: the member that admitted this peer is gone, and this peer knows no other member."""
        self.asking = True
        self.ask(now)

    def ask(self, now: float, rank: int = -1) -> None:
        """Ask the contact with this rank, which has just answered; otherwise the next one."""
        contact = self._contacts[self._asked % len(self._contacts)]
        self._asked += 1
        contact = next((one for one in self._contacts if one.rank == rank), contact)
        me = self._opinions.me
        self._post.say(contact.rank, JoinRequest(me.endpoint, me.key), to=contact)
        # The time that a member takes to check the rank, plus a round trip.
        self._timers.set("ask", now + self._settings.interval + 2 * self._settings.timeout_ceiling)

    def settled(self) -> None:
        """Stop asking: this peer was admitted, or never will be."""
        self.asking = False
        self._timers.drop("ask")

    # The member's side

    def check(self, newcomer: Record) -> None:
        """Raise `Rejected` if a request is not valid, or if the table is full."""
        wrong = newcomer.wrong()
        if wrong:
            raise Rejected(Reason.MALFORMED, f"a request to join with {wrong}", newcomer.rank)
        if self._opinions.table.get(newcomer.rank) is None and len(self._opinions.table) >= MEMBERS_LIMIT:
            raise Rejected(Reason.OVERSIZED, f"the table is full: it has {MEMBERS_LIMIT} ranks", newcomer.rank)

    def asked(self, newcomer: Record, now: float) -> None:
        """Answer a newcomer's request, at once or after a check of its rank."""
        known = self._opinions.table.get(newcomer.rank)
        if newcomer.rank == self._opinions.me.rank:
            self._refuse(newcomer, self._opinions.me)
        elif known is None or known.final or known.same_process(newcomer):
            self._decide(newcomer, now)
        elif newcomer not in self._checks.values() and len(self._checks) < _CHECKS:
            sequence = self._next_sequence()
            self._checks[sequence] = newcomer
            self._timers.set("check", now + self._settings.interval, sequence)
            self._post.say(newcomer.rank, Ping(sequence), to=known)

    def acknowledged(self, sequence: int) -> None:
        """Note that the owner of a rank that a newcomer asks for is alive."""
        newcomer = self._checks.pop(sequence, None)
        if newcomer is not None:
            self._timers.drop("check", sequence)
            known = self._opinions.table.get(newcomer.rank)
            assert known is not None, "records are never forgotten"
            self._refuse(newcomer, known)

    def unanswered(self, sequence: int, now: float) -> None:
        """Note that the owner of the rank did not answer."""
        self._decide(self._checks.pop(sequence), now)

    def _decide(self, newcomer: Record, now: float) -> None:
        known = self._opinions.table.get(newcomer.rank)
        if known is not None and known.incarnation >= newcomer.incarnation:
            self._post.say(newcomer.rank, Behind(known.incarnation), to=newcomer)
            return
        self._opinions.learn(Update(newcomer), now)
        me = self._opinions.me
        self._post.say(newcomer.rank, Welcome(newcomer.incarnation), tell=me.rank, to=newcomer)

    def _refuse(self, newcomer: Record, holder: Record) -> None:
        if newcomer.same_process(holder):
            return  # this peer's own message, which came back
        reason = (
            f"rank {newcomer.rank} is taken: {holder.endpoint} has it in life {holder.incarnation} and answers; "
            f"start {newcomer.endpoint} with another rank, or stop the other peer first"
        )
        self._post.say(newcomer.rank, Taken(reason[:400]), to=newcomer)
