"""What happens to a swarm, as one peer sees it: counted, recorded, and said to the user if the user should know.

Every change of a member, every kind of rejection and all mass that is written off becomes an event of the run
directory. Of repeated events the first, the tenth, the hundredth are recorded, and counters hold the rest. Only the
gossip thread writes here. Another thread may read at any time, if it copies what it reads in one go: no lock is needed
for that, and training never waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from gossip import events
from gossip.errors import Reason
from gossip.membership import Record, State
from peers.table.lives import life_text

__all__ = ["Chronicle"]

#: The name by which a change to a state is counted.
_HAPPENED = {State.SUSPECT: "suspected", State.DEAD: "died", State.LEFT: "left"}


class Chronicle:
    """Counts and events."""

    def __init__(
        self,
        known: Iterable[int],
        shards: int,
        warn: Callable[[str], None],
        note: Callable[..., None],
        *,
        newcomer: bool = False,
        lives_known: bool = True,
        unit: str = "rank",
    ) -> None:
        """Begin.

        Args:
            known: the other ranks that are members from the start.
            shards: of the model: weights are reported per shard, and the core sums them over shards.
            warn: is called with a sentence that the user should read.
            note: is called with the fields of an event.
            newcomer: whether this peer enters a running swarm, and so hears of many members at once.
            lives_known: whether the known ranks begin in life 0. Otherwise each tells its life with its first message.
            unit: what a number is in sentences: a "rank", or a "replica" if each has several processes.
        """
        #: Effects of the core by their name, and what happened to members: "member died" and so on.
        self.counts: Counter[str] = Counter()
        #: Rejected frames, by reason. What a newcomer hears before it is let in does not count: others push to a rank
        #: that was restarted until they know, and it does not know them yet.
        self.rejected: Counter[Reason] = Counter()
        #: The last known state of each other rank.
        self.states: dict[int, str] = dict.fromkeys(known, "alive")
        #: The weight that nobody holds any more because of this peer.
        self.written_off = 0.0
        self._shards = shards
        self._warn = warn
        self._note = note
        self._newcomer = newcomer
        #: What a number is in sentences.
        self.unit = unit
        #: The ranks whose life this peer has not heard of yet.
        self._unheard = set() if lives_known else set(self.states)
        #: Whether the peers have not yet compared their models; those that differ are about to be told so.
        self.comparing = False
        self._not_finite: set[int] = set()
        #: How often each rank slowed or recovered: a straggler may do so with every step.
        self._paces: Counter[tuple[int, str]] = Counter()

    def saw(self, effect: events.Effect, members: int) -> None:
        """Take in an effect of the core, when its view has this number of members."""
        self.counts[type(effect).__name__] += 1
        match effect:
            case events.MemberChanged(record, before):
                self._member_changed(record, before)
            case events.Welcomed():
                self._newcomer = False
                self._note(event="welcomed", members=members)
            case events.Expelled(reason):
                self._note(event="expelled", text=reason)
                self._warn(reason)
            case events.RejectedFrame():
                self._rejected(effect)
            case events.Reincarnated(address, written_off) if not self._newcomer:
                self._reincarnated(address.incarnation, written_off / self._shards)
            case events.Compressing(choice):
                self._note(event="compress", codec=choice.codec, share=choice.share, text=f"{choice}: {choice.reason}")
                self._warn(f"chose to send {choice}: {choice.reason}")
            case events.Left(written_off):
                self._left(written_off / self._shards if members > 1 else 0.0)
            case events.NotFinite(shard) if shard not in self._not_finite:
                self._not_finite.add(shard)
                self._warn(f"shard {shard} holds NaN or infinity: training diverged here, and nothing of it is pushed")

    def _member_changed(self, record: Record, before: Record | None) -> None:
        state = record.state.name.lower()
        what = self._what_happened(record, before)
        self.states[record.rank] = state
        self.counts[f"member {what}"] += 1
        if what in ("slowed", "recovered"):
            self._paces[record.rank, what] += 1
            if not _is_round(self._paces[record.rank, what]):
                return
        self._note(
            event="member",
            what=what,
            rank=record.rank,
            incarnation=record.incarnation,
            state=state,
            before="unknown" if before is None else before.state.name.lower(),
            endpoint=record.endpoint,
        )
        if what == "died":
            self._warn(f"{self.unit} {record.rank} is dead: it answered nobody; mass in flight to it is taken back")
        elif what in ("joined", "returned"):
            life = life_text(record.incarnation)
            self._warn(f"{self.unit} {record.rank} has joined from {record.endpoint}, in life {life}")

    def _what_happened(self, record: Record, before: Record | None) -> str:
        """Return what happened to a member, in a word."""
        if before is None:
            # A member of which a newcomer hears before it is let in was there before it.
            return "known" if self._newcomer or record.final else "joined"
        if record.rank in self._unheard and record.incarnation:
            self._unheard.discard(record.rank)
            if record.state not in _HAPPENED:
                return "known"
        if record.state in _HAPPENED and (record.state, record.incarnation) != (before.state, before.incarnation):
            return _HAPPENED[record.state]
        if record.incarnation > before.incarnation or before.final:
            return "returned"
        if State.SLOW in (record.state, before.state):
            return "slowed" if record.state is State.SLOW else "recovered"
        return "refuted" if before.state is State.SUSPECT else "moved"

    def _rejected(self, effect: events.RejectedFrame) -> None:
        reason = effect.reason
        if self._newcomer and reason is Reason.STRANGER:
            return
        self.rejected[reason] += 1
        count = self.rejected[reason]
        if _is_round(count):
            self._note(
                event="rejected", reason=reason.value, origin=effect.origin, count=count, text=effect.detail[:200]
            )
        # Frames that are late for a former life, or early from a peer not heard of yet, are to be expected.
        expected = {Reason.STALE, Reason.STRANGER} | ({Reason.SHAPE, Reason.DTYPE} if self.comparing else set())
        if effect.log and reason not in expected:
            self._warn(f"rejected a frame, {count} so far: {reason.value} from {effect.origin}: {effect.detail}")

    def _reincarnated(self, incarnation: int, weight: float) -> None:
        self.written_off += weight
        self.counts["reincarnated"] += 1
        self._note(event="reincarnated", incarnation=incarnation, written_off=weight)
        self._warn(
            f"others had declared this peer dead; it goes on in life {life_text(incarnation)}, and a weight of "
            f"{weight:.3g} was written off"
        )

    def _left(self, weight: float) -> None:
        self.written_off += weight
        self._note(event="left", written_off=weight)
        if weight > 0:
            self._warn(f"left with a weight of {weight:.3g} that nobody took in time; it is written off")


def _is_round(count: int) -> bool:
    """Whether a count is 1, 10, 100 and so on: a flood of events must not fill the disk."""
    return str(count).rstrip("0") == "1"
