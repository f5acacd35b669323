"""How a newcomer gets in, from both sides.

The newcomer asks its contacts in turn until one answers (`Ask`). A member decides by what it holds of that rank:

    nothing, or an earlier life that is over              welcome
    an earlier life of the same process (it restarted)    welcome: the restart was faster than the detector
    the same life or a later one, of the same process     behind: that life is used up, come back with a later one
      or over
    another process that still counts as living           ping that one. It answers: taken. It does not: as if dead

Sequences start from 0 in each life, so a process that restarted must not go on in the life it had; since it
cannot always be told from one whose welcome was lost, both take a later life, which costs a newcomer nothing.

A newcomer answers no pings before it is welcome: it would answer for the one whose rank it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gossip.errors import Reason, Rejected
from gossip.membership.bodies import Ask, Behind, Ping, Taken, Update, Welcome
from gossip.membership.membership_settings import MembershipSettings
from gossip.membership.opinions import Opinions
from gossip.membership.post import Post
from gossip.membership.record import Record
from gossip.membership.table import MEMBERS_LIMIT
from gossip.membership.timers import Timers

__all__ = ["Admission"]

#: Newcomers whose rank is looked into at a time; the others ask again.
_CHECKS = 64


class Admission:
    """Newcomers that ask us, and our own asking."""

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
        #: Newcomers whose rank seems to be another's, by the ping to that one.
        self._checks: dict[int, Record] = {}
        self._contacts: Sequence[Record] = ()
        self._asked = 0
        #: Whether we are not a member yet.
        self.asking = False

    # The newcomer's side

    def join(self, contacts: Sequence[Record], now: float) -> None:
        """Ask the contacts, one after the other, until one answers."""
        self._contacts = contacts
        self.ask_again(now)

    def ask_again(self, now: float) -> None:
        """Go on with the next contact: the one that let us in is gone before we heard of anybody else."""
        self.asking = True
        self.ask(now)

    def ask(self, now: float, rank: int = -1) -> None:
        """Ask the contact with this rank, which has just answered; otherwise the next one."""
        contact = self._contacts[self._asked % len(self._contacts)]
        self._asked += 1
        contact = next((one for one in self._contacts if one.rank == rank), contact)
        me = self._opinions.me
        self._post.say(contact.rank, Ask(me.endpoint, me.key), to=contact)
        # As long as a member takes to look into it, and a round trip.
        self._timers.set("ask", now + self._settings.interval + 2 * self._settings.timeout_ceiling)

    def settled(self) -> None:
        """Ask no more: we are in, or will never be."""
        self.asking = False
        self._timers.drop("ask")

    # The member's side

    def check(self, newcomer: Record) -> None:
        """Raise `Rejected` for a request that cannot be meant, or that there is no room for."""
        wrong = newcomer.wrong()
        if wrong:
            raise Rejected(Reason.MALFORMED, f"asks to join with {wrong}", newcomer.rank)
        if self._opinions.table.get(newcomer.rank) is None and len(self._opinions.table) >= MEMBERS_LIMIT:
            raise Rejected(Reason.OVERSIZED, f"there are {MEMBERS_LIMIT} ranks already", newcomer.rank)

    def asked(self, newcomer: Record, now: float) -> None:
        """Answer a newcomer's request, at once or when its rank has been looked into."""
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
        """Take in that the one whose rank a newcomer asks for is alive."""
        newcomer = self._checks.pop(sequence, None)
        if newcomer is not None:
            self._timers.drop("check", sequence)
            known = self._opinions.table.get(newcomer.rank)
            assert known is not None, "records are never forgotten"
            self._refuse(newcomer, known)

    def unanswered(self, sequence: int, now: float) -> None:
        """Take in that it did not answer."""
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
            return  # a message of our own that came back to us
        reason = (
            f"rank {newcomer.rank} is taken: {holder.endpoint} has it in life {holder.incarnation} and answers; "
            f"{newcomer.endpoint} needs another rank, or the other has to end first"
        )
        self._post.say(newcomer.rank, Taken(reason[:400]), to=newcomer)
