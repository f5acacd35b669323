"""In which codec parcels go out, and which share of the shards per step.

Fixed by the user, or found out by measuring (``auto``): a link that cannot carry the model within a step makes
everybody wait, or push less often than the schedule says. What is measured is how many bytes were answered for per
second in which anything was on its way, and how long a step computes. Then the heaviest of

    none, bf16, int8, int8 with fewer shards per step

is taken that the link carries in `_ROOM` of a step. Rounding costs less than pushing fewer shards, so it comes first;
and what rounding takes off stays with the sender, so no mass is lost by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gossip import codecs
from gossip.codecs import Codec
from gossip.errors import SettingsError
from gossip.mass import Layout

__all__ = ["AUTO", "Choice", "Coding", "check_codec", "trusted"]

AUTO = "auto"
#: The codecs that are tried, from the heaviest, and where it starts: too light costs little, too heavy a lot.
_LADDER = ("none", "bf16", "int8")
_FIRST = "int8"
#: The part of a step's computing that a push may take; and the part from which on a heavier choice is worth it.
_ROOM, _AMPLE = 0.8, 0.6
#: Steps from one look to the next, and answers that a look needs.
_STEPS, _ANSWERS = 16, 8
#: The least share that is chosen: with less replicas drift apart.
_LEAST = 1 / 16


def check_codec(text: str) -> None:
    """Raise a `SettingsError` unless parcels can go out like that."""
    if text == AUTO:
        return
    codec = codecs.parse(text)
    if not codec.carries_mass:
        carriers = [name for name in codecs.names() if codecs.get(name).carries_mass]
        raise SettingsError(
            f"{codec.name} cannot carry mass: most of it would not arrive, or too coarsely; it is for gradients and "
            f"differences. Use {', '.join(carriers)} or {AUTO}"
        )


@lru_cache(maxsize=64)
def trusted(text: str, own: str) -> Codec | None:
    """Return the codec that a parcel claims, if it is one of ours or a usual one; None: nothing is made of it.

    Parameters from the wire are not believed: a block of a billion values would be ours to allocate.
    """
    usual = {codecs.spell(codecs.get(name)): codecs.get(name) for name in codecs.names()}
    if own not in ("", AUTO):
        codec = codecs.parse(own)
        usual[codecs.spell(codec)] = codec
    found = usual.get(text)
    return found if found is not None and found.carries_mass else None


@dataclass(frozen=True)
class Choice:
    """How parcels go out from now on, and why."""

    codec: str
    share: float
    reason: str

    def __str__(self) -> str:
        return self.codec if self.share == 1 else f"{self.codec}, {self.share:.0%} of the shards per step"


class Coding:
    """The codec of one peer's parcels."""

    def __init__(self, text: str, share: float, layout: Layout) -> None:
        """Begin.

        Args:
            text: a codec's name, or `AUTO`.
            share: of the shards, per step, at most.
            layout: what there is to push.
        """
        check_codec(text)
        self._auto = text == AUTO
        self._most = share
        self._layout = layout
        self._choose(_FIRST if self._auto else text, share)
        self._steps = 0
        self._answers = 0
        self._carried = 0
        #: Seconds in which something was on its way, and since when something is.
        self._busy = 0.0
        self._busy_since: float | None = None

    def _choose(self, name: str, share: float) -> None:
        codec = codecs.parse(name)
        self.share = share
        #: None: values go as they are.
        self.codec: Codec | None = None if codec.name == "none" else codec
        self.spelled = codecs.spell(codec)

    def nbytes(self, shard: int) -> int:
        """Return how many bytes a parcel of the shard has."""
        return self._size(shard, self.codec)

    def busy(self, busy: bool, now: float) -> None:
        """Take in whether anything is on its way."""
        if self._busy_since is not None:
            self._busy += now - self._busy_since
        self._busy_since = now if busy else None

    def answered(self, nbytes: int) -> None:
        """Take in that so many bytes have got through."""
        self._answers += 1
        self._carried += nbytes

    def step(self, compute: float | None, pushes: int) -> Choice | None:
        """Take in that a step is over, and return a new choice, if it is time for one.

        Args:
            compute: seconds that a step computes; None: not known yet.
            pushes: neighbours that are pushed to in a turn.
        """
        self._steps += 1
        if not self._auto or compute is None or self._steps < _STEPS or self._answers < _ANSWERS or self._busy <= 0:
            return None
        rate = self._carried / self._busy
        self._steps = self._answers = self._carried = 0
        self._busy = 0.0
        chosen = self._best(rate, compute, max(1, pushes))
        if chosen == (self.codec.name if self.codec else "none", self.share):
            return None
        self._choose(*chosen)
        needed = self._seconds(chosen[0], rate, pushes) * self.share
        return Choice(
            chosen[0],
            self.share,
            f"the link carries {rate / 1e6:.3g} MB/s, a step computes {compute:.3g} s, so a push takes {needed:.2g} s",
        )

    def _best(self, rate: float, compute: float, pushes: int) -> tuple[str, float]:
        current = self.codec.name if self.codec is not None else "none"
        for name in _LADDER:
            heavier = _LADDER.index(name) < _LADDER.index(current) or self.share < self._most
            if self._seconds(name, rate, pushes) * self._most <= (_AMPLE if heavier else _ROOM) * compute:
                return name, self._most
        affordable = _ROOM * compute / self._seconds(_LADDER[-1], rate, pushes)
        # In steps of a factor of two, or it would change with every look.
        share = self._most
        while share > affordable and share > _LEAST:
            share /= 2
        return _LADDER[-1], share

    def _seconds(self, name: str, rate: float, pushes: int) -> float:
        codec = None if name == "none" else codecs.get(name)
        total = sum(self._size(shard, codec) for shard in range(self._layout.shards))
        return total * pushes / rate

    def _size(self, shard: int, codec: Codec | None) -> int:
        nbytes = self._layout.nbytes(shard)
        if codec is None:
            return nbytes
        dtype = self._layout.dtypes[shard]
        return codec.size(nbytes // dtype.itemsize, dtype)
