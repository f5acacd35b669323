"""The grammar of each single straggler and fault: one for the simulator and for real processes.

    moment      100 | 100step | 2.5s | 300ms          steps are the default unit
    span        moment, as a length
    ranks       3 | 0-31 | 0-3,8                       inclusive
    straggler   RANKS=4x | RANKS=+50ms | random=10%:2x-5x, each may end in @FROM-TO (moments);
                random: each rank is slow with this probability, drawn by the seed
    kill        RANK@MOMENT
    restart     RANK@MOMENT
    join        RANK@MOMENT
    pause       RANK@MOMENT+SPAN
    cut         RANKS|RANKS@MOMENT+SPAN
    share       10% | 0.1
    delay       20ms | 5ms-50ms
    bandwidth   50 | 50mbit | 10kbit | 1gbit           megabits are the default unit

Every parser raises a `SettingsError` that quotes the text, says what is wrong, and shows the expected form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from gossip.errors import SettingsError
from gossip.shares import parse_share
from topologies.draws import chance, draw

__all__ = ["Cut", "Incident", "Moment", "Pause", "Straggler", "parse_bandwidth", "parse_cut", "parse_delay",
           "parse_incident", "parse_pause", "parse_straggler"]  # fmt: skip

_UNITS = {"": None, "step": None, "steps": None, "s": 1.0, "ms": 1e-3}
#: Nine digits are enough for any run, and a float holds such numbers exactly.
_NUMBER = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(steps?|ms|s)?")


@dataclass(frozen=True)
class Moment:
    """A time, or a span of time, in steps or in seconds."""

    value: float
    in_steps: bool

    def seconds(self, step_seconds: float) -> float:
        """Return the moment in seconds, if a step takes ``step_seconds``."""
        return self.value * step_seconds if self.in_steps else self.value

    def reached(self, step: float, seconds: float) -> bool:
        """Whether the moment has come after this number of steps and seconds."""
        return (step if self.in_steps else seconds) >= self.value

    def __str__(self) -> str:
        return f"step {self.value:g}" if self.in_steps else f"{self.value:g} s"


@dataclass(frozen=True)
class Straggler:
    """Peers that take ``factor`` times as long for a step, and ``extra`` seconds on top, for a while or always."""

    #: The slow ranks; None if a ``share`` of all ranks is drawn by the seed.
    ranks: frozenset[int] | None
    factors: tuple[float, float] = (1.0, 1.0)
    extra: float = 0.0
    share: float = 0.0
    start: Moment | None = None
    stop: Moment | None = None

    def slows(self, rank: int, seed: int) -> bool:
        """Whether the rank is slow."""
        return rank in self.ranks if self.ranks is not None else chance(self.share, seed, rank, 1)

    def factor(self, rank: int, seed: int) -> float:
        """Return the factor by which the rank's steps take longer; a range is drawn from by the seed."""
        low, high = self.factors
        return low + (high - low) * (draw(seed, rank, 2) >> 11) / (1 << 53)


@dataclass(frozen=True)
class Incident:
    """Something that happens to one peer at a moment: a kill, a restart or a join."""

    rank: int
    at: Moment


@dataclass(frozen=True)
class Pause:
    """A peer is stopped for a while, as if by a signal."""

    rank: int
    at: Moment
    span: Moment


@dataclass(frozen=True)
class Cut:
    """Nothing passes between two groups of ranks for a while."""

    left: frozenset[int]
    right: frozenset[int]
    at: Moment
    span: Moment

    def separates(self, a: int, b: int) -> bool:
        """Whether the two ranks are on different sides."""
        return (a in self.left and b in self.right) or (a in self.right and b in self.left)


def parse_incident(text: str) -> Incident:
    """Parse ``RANK@MOMENT``."""
    rank, at, moment = text.partition("@")
    if not at:
        _refuse(text, "RANK@MOMENT, such as 3@100 or 3@2.5s")
    return Incident(_rank(rank, text), _moment(moment, text))


def parse_pause(text: str) -> Pause:
    """Parse ``RANK@MOMENT+SPAN``."""
    rank, at, when = text.partition("@")
    moment, plus, span = when.partition("+")
    if not at or not plus:
        _refuse(text, "RANK@MOMENT+SPAN, such as 1@100+10s")
    return Pause(_rank(rank, text), _moment(moment, text), _moment(span, text))


def parse_cut(text: str) -> Cut:
    """Parse ``RANKS|RANKS@MOMENT+SPAN``."""
    sides, at, when = text.partition("@")
    left, bar, right = sides.partition("|")
    moment, plus, span = when.partition("+")
    if not at or not bar or not plus:
        _refuse(text, "RANKS|RANKS@MOMENT+SPAN, such as 0-31|32-63@100+50")
    cut = Cut(_ranks(left, text), _ranks(right, text), _moment(moment, text), _moment(span, text))
    both = cut.left & cut.right
    if both:
        raise SettingsError(f"{text!r}: rank {min(both)} is on both sides of the cut")
    return cut


def parse_straggler(text: str) -> Straggler:
    """Parse ``RANKS=4x``, ``RANKS=+50ms`` or ``random=10%:2x-5x``, each with or without ``@FROM-TO``."""
    who, equals, rest = text.partition("=")
    how, at, when = rest.partition("@")
    wanted = "RANKS=4x, RANKS=+50ms or random=10%:2x-5x, with @FROM-TO if it ends"
    if not equals:
        _refuse(text, wanted)
    start = stop = None
    if at:
        first, dash, last = when.partition("-")
        if not dash:
            _refuse(text, wanted)
        start, stop = _moment(first, text), _moment(last, text)
        if start.in_steps == stop.in_steps and stop.value <= start.value:
            raise SettingsError(f"{text!r}: the end is before the beginning")
    if who.strip() == "random":
        share, colon, factors = how.partition(":")
        if not colon:
            _refuse(text, wanted)
        low, dash, high = factors.partition("-")
        pair = (_factor(low, text), _factor(high if dash else low, text))
        return Straggler(None, pair, share=parse_share(share, text), start=start, stop=stop)
    ranks = _ranks(who, text)
    if how.startswith("+"):
        extra = _moment(how[1:], text)
        if extra.in_steps:
            raise SettingsError(f"{text!r}: give the delay in seconds or milliseconds, as in {who}=+50ms")
        return Straggler(ranks, extra=extra.value, start=start, stop=stop)
    factor = _factor(how, text)
    return Straggler(ranks, (factor, factor), start=start, stop=stop)


def parse_delay(text: str) -> tuple[float, float]:
    """Parse ``20ms`` or ``5ms-50ms``; return the least and the largest delay, in seconds."""
    low, dash, high = text.partition("-")
    moments = [_moment(part, text) for part in (low, high if dash else low)]
    if any(moment.in_steps and moment.value for moment in moments) or moments[0].value > moments[1].value:
        _refuse(text, "TIME or TIME-TIME with units, the least first, such as 20ms or 5ms-50ms")
    return moments[0].value, moments[1].value


def parse_bandwidth(text: str) -> float:
    """Parse ``50`` or ``50mbit``, the bits per second of a link; return bytes per second."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([kmg]bit)?", text.strip(" "), re.IGNORECASE | re.ASCII)
    if match is None or not float(match[1]) > 0:
        _refuse(text, "NUMBER[kbit|mbit|gbit] with a number above 0, such as 50mbit, 10kbit or 1gbit")
    return float(match[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[(match[2] or "m")[0].lower()] / 8


def _refuse(text: str, wanted: str) -> NoReturn:
    raise SettingsError(f"{text!r} is not of the form {wanted}")


def _rank(text: str, whole: str) -> int:
    digits = text.strip(" ")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise SettingsError(f"{whole!r}: a rank must be a number from 0 on, not {text!r}")
    return int(digits)


def _ranks(text: str, whole: str) -> frozenset[int]:
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low = _rank(first, whole)
        high = _rank(last, whole) if dash else low
        if high < low:
            raise SettingsError(f"{whole!r}: the range {part!r} must begin with the lower rank")
        if high - low > 1_000_000:
            raise SettingsError(f"{whole!r}: the range {part!r} has more ranks than any swarm")
        ranks.update(range(low, high + 1))
    return frozenset(ranks)


def _moment(text: str, whole: str) -> Moment:
    match = _NUMBER.fullmatch(text.strip(" "))
    if match is None:
        raise SettingsError(f"{whole!r}: {text!r} is not a number of steps, nor a time such as 2.5s or 300ms")
    unit = _UNITS[match[2] or ""]
    return Moment(float(match[1]) * (1.0 if unit is None else unit), in_steps=unit is None)


def _factor(text: str, whole: str) -> float:
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)x", text.strip(" "))
    if match is None or not float(match[1]) > 0:
        raise SettingsError(f"{whole!r}: {text!r} is not a factor such as 4x")
    return float(match[1])
