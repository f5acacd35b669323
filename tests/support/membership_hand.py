"""One membership, fed by hand, whose mail is read as what was said."""

from __future__ import annotations

from collections.abc import Sequence

from gossip.membership import Membership, MembershipSettings, Record
from gossip.membership.bodies import Envelope, Said, Update
from gossip.membership.body_codec import decode, encode, pack_update
from gossip.membership.member_events import BodyReceived, Effect, Event, MemberTick, SendBody
from gossip.simulation.memberships import record_of

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


class Hand:
    """The peer of rank 0 among ``n``; nobody answers unless `say` does."""

    def __init__(self, n: int = 8) -> None:
        self.settings = MembershipSettings()
        self.now = 100.0
        known = {rank: record_of(rank) for rank in range(n)}
        self.one = Membership(known[0], self.settings, 5, self.now, known)
        self.effects: list[Effect] = []

    def feed(self, event: Event) -> list[Effect]:
        """Let an event happen, and return what came of it."""
        found = self.one.handle(event, self.now)
        self.one.validate_state()
        self.effects += found
        return found

    def say(
        self, origin: int, said: Said, *updates: Record | Update, life: int = 0, refutations: int = 0
    ) -> list[Effect]:
        """Let another peer say something."""
        news = [update if isinstance(update, Update) else Update(update) for update in updates]
        packed = [pack_update(update.record, update.accusers) for update in news]
        sender = Record(origin, life, refutations, endpoint=f"peer-{origin}:5555")
        return self.feed(BodyReceived(origin, encode(sender, said, packed)))

    def until(self, moment: float) -> list[tuple[int, Envelope]]:
        """Tick whenever it is due up to a moment; return all that was sent, as (to, envelope)."""
        sent: list[tuple[int, Envelope]] = []
        while self.one.deadline is not None and self.one.deadline <= moment:
            self.now = max(self.now, self.one.deadline)
            sent += mail(self.feed(MemberTick()))
        self.now = moment
        return sent


def mail(effects: Sequence[Effect]) -> list[tuple[int, Envelope]]:
    """Return what was sent, as (to, envelope)."""
    return [(effect.rank, decode(effect.body, 0)) for effect in effects if isinstance(effect, SendBody)]


def only(effects: Sequence[Effect], kind: type[Effect]) -> list[Effect]:
    """Return the effects of a kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def picture(one: Membership) -> tuple[object, ...]:
    """Return all that a membership holds, to see whether something changed."""
    opinions = one._opinions
    return (
        sorted(opinions.table, key=lambda record: record.rank),
        dict(one._timers._at),
        dict(opinions.updates._told),
        {rank: (s.since, sorted(s.accusers)) for rank, s in opinions._suspicions.items()},
        sorted(opinions._reported_slow),
        dict(opinions._late),
        one.health,
        one._now,
        repr(one._probes._probe),
        dict(one._probes._errands),
        dict(one._admission._checks),
    )
