"""In which codec parcels go out, and which share of the shards per step.

Fixed by the user, or found out by measuring (``auto``): a link that cannot carry the model from one exchange to the
next makes everybody wait, or push less often than the schedule says. What is measured is how many bytes were answered
for per second in which anything was in flight, and how long the steps from one exchange to the next compute. Then one
of

    none, bf16, int8, int8 with fewer of the shards

is taken. Rounding costs less than pushing fewer shards, so it comes first; and what rounding takes off stays with the
sender, so no mass is lost by it. Among shares of int8 the one is taken that gets furthest in a second: what a step is
worth with that share (`gossip.choosing.worths`), over the seconds that it takes. Where a push overlaps with computing,
these are the seconds of the longer of the two, and a push has a part of the computing, the `Room`: most of it, and less
where the trainer waits all the same. Where parcels of the turn are waited for, they are the sum of both.
"""

from __future__ import annotations

from gossip import codecs
from gossip.choosing.worths import share_worth
from gossip.codecs import Codec
from gossip.codecs.choice import Choice
from gossip.codecs.difference_codec import DifferenceCodec
from gossip.codecs.pair_coding import PAIRS, PairCoding
from gossip.codecs.trusted import AUTO
from gossip.errors import SettingsError
from gossip.exchange.headroom import Room
from gossip.policies.policy import Policy
from gossip.values.layout import Layout
from topologies.draws import below
from topologies.spec import suggest

__all__ = ["AUTO", "LEAST", "Choice", "Coding", "check_codec", "gamma_notice"]

#: The codecs that are tried, from the heaviest, and where it starts: too light costs little, too heavy a lot.
_LADDER = ("none", "bf16", "int8")
_FIRST = "int8"
#: What int8 would save is sent only where that takes no more than this part of the computing: links are shared with
#: what others send, and a peer that computes for long should not fill those of its neighbours.
_LIGHT = 0.25
#: And where each push is waited for, only where that takes no more than this part.
_LIGHT_WAITED = 0.05
#: A heavier choice has to fit into this part of the room, or it would change with every look.
_AMPLE = 0.75
#: Exchanges from one look to the next, and answers that a look needs.
_EXCHANGES, _ANSWERS = 8, 8
#: The least share that is chosen: with less replicas drift apart.
LEAST = 1 / 16


def check_codec(text: str, policy: Policy | None = None) -> None:
    """Raise a `SettingsError` unless parcels of the policy can go out like that; None: of one that pushes mass."""
    name = text.partition(":")[0].strip()
    if name == AUTO and text != AUTO:
        raise SettingsError(f"{AUTO} takes no parameters: it finds out by itself. Say {AUTO}, not {text!r}")
    if PairCoding.parse(text) is not None:
        if policy is None or not policy.pairwise:
            told = "this algorithm" if policy is None else policy.name
            raise SettingsError(
                f"{PAIRS} averages some values of two peers, and {told} does not average in pairs; "
                "use it with adpsgd or easgd, or another codec, such as int8"
            )
        if policy.warmup:
            raise SettingsError(
                f"{PAIRS} keeps to no turns, so nobody can wait for the turn's part; use it without warmup, "
                "or another codec, such as int8"
            )
        return
    if policy is not None and policy.differences:
        if text == AUTO:
            raise SettingsError(
                f"{policy.name} tells differences in one codec, which both ends of an edge know; {AUTO} changes it. "
                f"Use any of {', '.join(codecs.names())}"
            )
        codecs.parse(text)
        return
    if text == AUTO or (policy is not None and policy.collective):  # that pushes none: gossip.collective.making checks
        return
    if name not in codecs.names():
        raise SettingsError(suggest("codec", name, [*codecs.names(), AUTO, PAIRS]))
    codec = codecs.parse(text)
    if not codec.carries_mass:
        carriers = [one for one in codecs.names() if codecs.get(one).carries_mass]
        instead = f"{', '.join(carriers)} or {AUTO}"
        if policy is not None and policy.pairwise:
            instead = f"{PAIRS}, with which {policy.name} averages the values that changed most; or {instead}"
        elif policy is not None and policy.may_differ:
            instead = f"{policy.name} with differences=true, on a fixed symmetric topology; or {instead}"
        elif policy is not None and policy.outer is not None:
            instead = f"slowmo:differences=true on a fixed symmetric topology; or {instead}"
        others = "allreduce, or choco on a fixed symmetric topology"
        if not codec.quantises and (policy is None or not policy.pairwise):
            others += f"; or say {PAIRS} with adpsgd"
        raise SettingsError(
            f"{codec.name} cannot carry mass: most of it would not arrive, or too coarsely; it is for gradients and "
            f"differences. Use {instead}; or, for {codec.name}, {others}"
        )


def gamma_notice(text: str, policy: Policy) -> str:
    """Return a notice for users whose gamma is too large for the codec; empty if it is not."""
    if not policy.differences or not policy.gamma:
        return ""
    usual = DifferenceCodec(codecs.parse(text)).usual_gamma()
    if policy.gamma <= usual:
        return ""
    return (
        f"{policy.name}:gamma={policy.gamma:g} is above {usual:.3g}, up to which replicas come together with {text}: "
        f"they may drift apart without end. Leave gamma out, which means {usual:.3g}, or set a smaller one"
    )


class Coding:
    """The codec of one peer's parcels."""

    def __init__(self, text: str, share: float, layout: Layout, policy: Policy | None = None) -> None:
        """Begin.

        Args:
            text: a codec's name, `AUTO`, or `PAIRS`.
            share: of the shards, per step, at most.
            layout: what there is to push.
            policy: the algorithm, if it is not just any that pushes mass.
        """
        check_codec(text, policy)
        if policy is not None and policy.collective:
            text = "none"  # for its exchange; no parcels go out
        self._auto = text == AUTO
        #: Whether each push is waited for.
        self._waits = policy is not None and policy.lag == 0
        #: Of the shards, per step: those that take their turn; all peers have the same.
        self.most = share
        self._layout = layout
        #: How some values are exchanged instead of whole shards, if they are; what is pushed then goes as it is.
        self.pairs = PairCoding.parse(text)
        #: How differences are told instead of pushing mass, if they are; what is pushed all the same goes as it is.
        self.differences = DifferenceCodec(codecs.parse(text)) if policy is not None and policy.differences else None
        #: Which part of the way a difference draws both ends.
        self.gamma = 0.0
        if self.differences is not None and policy is not None:
            self.gamma = policy.gamma or self.differences.usual_gamma()
        special = self.pairs or self.differences
        self._choose("none" if special is not None else _FIRST if self._auto else text, share)
        if special is not None:
            self.spelled = special.spelled
        self._room = Room()
        #: The choice before the last look.
        self._before = (_FIRST, share)
        #: Whether a choice has been told: the first is, even if it is what it began with.
        self._told = False
        self._exchanges = 0
        self._answers = 0
        self._carried = 0
        #: How long the trainer had waited at the last look.
        self._waited = 0.0
        #: Seconds in which something was in flight, and since when something is.
        self._busy = 0.0
        self._busy_since: float | None = None

    def _choose(self, name: str, share: float) -> None:
        codec = codecs.parse(name)
        self.share = share
        #: None: values go as they are.
        self.codec: Codec | None = None if codec.name == "none" else codec
        self.spelled = codecs.spell(codec)

    def leaves_out(self, shard: int, *keys: int) -> bool:
        """Whether a shard's turn passes without a push, because less than `most` of them is pushed.

        Its turn is taken all the same, and neighbours are told: they may push more than this peer does, and would wait
        for it. Which shards, is drawn anew for each step's keys: in turns, some would meet the same neighbours always.
        """
        if self.share == self.most:
            return False
        shards = self._layout.shards
        return (shard - below(shards, *keys)) % shards >= self._pushed(self.share)

    def _pushed(self, share: float) -> int:
        """Return how many of the shards are not left out, were all of them to take their turn."""
        return max(1, round(share / self.most * self._layout.shards))

    def nbytes(self, shard: int) -> int:
        """Return how many bytes a parcel of the shard has."""
        return self._size(shard, self.codec)

    def busy(self, busy: bool, now: float) -> None:
        """Take in whether anything is in flight."""
        if self._busy_since is not None:
            self._busy += now - self._busy_since
        self._busy_since = now if busy else None

    def answered(self, nbytes: int) -> None:
        """Take in that bytes have got through."""
        self._answers += 1
        self._carried += nbytes

    def exchanged(self, compute: float | None, waited: float, pushes: int, peers: int) -> Choice | None:
        """Take in that a step ended in an exchange; return a choice where it is the first, or another than before.

        Args:
            compute: seconds that the steps since the last exchange compute; None: not known yet.
            waited: seconds that the trainer has waited so far, in all.
            pushes: neighbours that are pushed to in a turn.
            peers: how many there are.
        """
        self._exchanges += 1
        if not self._auto or compute is None or self._busy <= 0:
            return None
        if self._exchanges < _EXCHANGES or self._answers < _ANSWERS:
            return None
        rate, wait, pushes = self._carried / self._busy, (waited - self._waited) / self._exchanges, max(1, pushes)
        current = self.codec.name if self.codec else "none", self.share
        back = False
        if not self._waits:
            pushed = self._seconds(current[0], rate, pushes) * self.share / compute
            back = self._room.look(wait / compute, pushed, self._dearer(current[0], peers))
        self.look_anew(waited)
        chosen = self._before if back else self._best(rate, compute, pushes, peers)
        self._before = current
        if chosen == current and self._told:
            return None
        self._told = True
        self._choose(*chosen)
        needed = self._seconds(chosen[0], rate, pushes) * self.share
        return Choice(
            chosen[0],
            self.share,
            f"the link carries {rate / 1e6:.3g} MB/s, so a push takes {needed:.2g} s; from one to the next the trainer "
            f"computes {compute:.3g} s and waited {wait:.2g} s",
        )

    def look_anew(self, waited: float) -> None:
        """Forget what was measured since the last look; ``waited`` is how long the trainer has waited so far."""
        self._exchanges = self._answers = self._carried = 0
        self._busy, self._waited = 0.0, waited

    def _best(self, rate: float, compute: float, pushes: int, peers: int) -> tuple[str, float]:
        current = self.codec.name if self.codec is not None else "none"
        room = self._room.part * compute
        light = min(room, (_LIGHT_WAITED if self._waits else _LIGHT) * compute)
        for name in _LADDER[:-1]:
            heavier = _LADDER.index(name) < _LADDER.index(current) or self.share < self.most
            if self._seconds(name, rate, pushes) * self.most <= (_AMPLE if heavier else 1) * light:
                return name, self.most
        whole = self._seconds(_LADDER[-1], rate, pushes)

        def progress(share: float) -> float:
            push = share * whole / (_AMPLE if share > self.share else 1)
            seconds = compute + push if self._waits else max(compute, push / self._room.part)
            return share_worth(share, self._waits, peers) / seconds

        return _LADDER[-1], max(self._shares(), key=progress)  # of equal ones the first, which is the largest

    def _shares(self) -> list[float]:
        """Return the shares that there are, from the largest: halves, or the choice would change with every look.

        They are of whole shards, so that what is said is done.
        """
        half, found = self.most, [self.most]
        while half > LEAST:
            half /= 2
            found.append(self.most * (self._pushed(half) / self._layout.shards))
        return list(dict.fromkeys(found))

    def _dearer(self, name: str, peers: int) -> float:
        """Return how many times as much a step is worth now as with the next lighter choice."""
        lighter = [share for share in self._shares() if share < self.share]
        if name != _LADDER[-1] or not lighter:
            return 1.0
        return share_worth(self.share, self._waits, peers) / share_worth(lighter[0], self._waits, peers)

    def _seconds(self, name: str, rate: float, pushes: int) -> float:
        codec = None if name == "none" else codecs.get(name)
        total = sum(self._size(shard, codec) for shard in range(self._layout.shards))
        return total * pushes / rate

    def _size(self, shard: int, codec: Codec | None) -> int:
        nbytes = self._layout.nbytes(shard)
        if self.pairs is not None:
            codec = self.pairs.moved
        elif self.differences is not None:
            codec = self.differences
        if codec is None:
            return nbytes
        dtype = self._layout.dtypes[shard]
        return codec.size(nbytes // dtype.itemsize, dtype)
