"""The numbers in a header: the name of each, its type and range, and the reason for a rejection.

The type must be exact: True is no count, and 1 is no weight. A range includes both its ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from gossip.errors import Reason, Rejected
from gossip.values.layout import Layout
from gossip.wire.limits import COUNT_LIMIT, WEIGHT_LIMIT
from gossip.wire.messages import Subject

__all__ = ["Field", "asked", "count", "flag", "fraction", "half", "shard", "subject", "weight", "weight_or_none"]

_ABOVE_0 = math.nextafter(0.0, 1.0)
_BELOW_1 = math.nextafter(1.0, 0.0)


@dataclass(frozen=True)
class Field:
    """A field of a header that is a number or a flag."""

    name: str
    #: The type, which no subclass is: True is no int here.
    exact: type[Any]
    least: float
    most: float
    #: The type and the range in words.
    rule: str
    reason: Reason = Reason.MALFORMED

    def fits(self, value: Any) -> bool:
        """Whether the field may have this value."""
        return type(value) is self.exact and bool(self.least <= value <= self.most)

    def within(self, layout: Layout) -> Field:
        """Return the field for messages about a model of this layout."""
        del layout
        return self

    def rejected(self, kind: str, value: Any, origin: int | None) -> Rejected:
        """Return the error for a value that does not fit, in a message of this kind from this rank."""
        return Rejected(self.reason, f"{kind}: {self.name} must be {self.rule}, not {value!r:.40}", origin)


def count(name: str, limit: int = COUNT_LIMIT) -> Field:
    """Return a field that counts from 0, below a limit."""
    return Field(name, int, 0, limit - 1, f"a whole number from 0 to {limit - 1}")


def flag(name: str) -> Field:
    """Return a field that is true or false."""
    return Field(name, bool, False, True, "True or False")


def fraction(name: str) -> Field:
    """Return a field that is a part of a whole: neither nothing nor all of it."""
    return Field(name, float, _ABOVE_0, _BELOW_1, "a float above 0 and below 1")


def half(name: str) -> Field:
    """Return a field that is a part of a whole: at most half of it."""
    return Field(name, float, _ABOVE_0, 0.5, "a float above 0 and at most 0.5")


def asked(name: str) -> Field:
    """Return a field that is a part of a whole, or 0 for nothing of it; never all of it."""
    return Field(name, float, 0.0, _BELOW_1, "a float from 0 and below 1")


def weight(name: str) -> Field:
    """Return a field that is a weight of mass."""
    rule = f"a float above 0 and at most {WEIGHT_LIMIT:g}"
    return Field(name, float, _ABOVE_0, WEIGHT_LIMIT, rule, Reason.WEIGHT)


def weight_or_none(name: str) -> Field:
    """Return a field that is a weight of mass, or 0 where no weight goes with the values."""
    return Field(name, float, 0.0, WEIGHT_LIMIT, f"a float from 0 to {WEIGHT_LIMIT:g}", Reason.WEIGHT)


def subject(name: str) -> Field:
    """Return a field that is the number of a `Subject`."""
    assert list(Subject) == list(range(len(Subject))), "a range has no gaps"
    return Field(name, int, min(Subject), max(Subject), f"the number of a subject, from 0 to {max(Subject)}")


def shard(name: str) -> Field:
    """Return a field that is the number of a shard of the model."""
    return _Shard(name, int, 0, COUNT_LIMIT - 1, "a shard of the model", Reason.SHAPE)


class _Shard(Field):
    def within(self, layout: Layout) -> Field:
        last = layout.shards - 1
        return replace(self, most=last, rule=f"a whole number from 0 to {last}, the last shard of the model")
