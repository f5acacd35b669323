"""A schedule as people read it: both directions of an exchange as one link, fractions as ratios."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from topologies import Schedule

__all__ = ["ListedLink", "fraction_text", "links_at", "shown_steps", "value_text"]

#: Fractions closer than this are the same.
_SAME = 1e-9
#: The longest period that is shown whole.
_LONGEST = 12
#: Steps shown of a schedule that never repeats, or has a longer period.
_FIRST = 6


@dataclass(frozen=True)
class ListedLink:
    """The fraction that goes from ``tail`` to ``head`` in a step and, if ``both``, the same back."""

    tail: int
    head: int
    fraction: float
    both: bool

    def __str__(self) -> str:
        return f"{self.tail}{'<->' if self.both else '->'}{self.head}"


def links_at(schedule: Schedule, step: int) -> list[ListedLink]:
    """Return the links of a step, by tail and head; an exchange counts once, at its lower rank."""
    edges = {(u, v): f for u in range(schedule.n) for v, f in schedule.out_edges(u, step)}
    links = []
    for (u, v), fraction in edges.items():
        both = abs(edges.get((v, u), -1.0) - fraction) < _SAME
        if not both or u < v:
            links.append(ListedLink(u, v, fraction, both))
    return links


def shown_steps(schedule: Schedule, wanted: int | None = None) -> tuple[int, str]:
    """Return how many steps to show, and which these are, in words."""
    period = schedule.period
    count = wanted or (period if period is not None and period <= _LONGEST else _FIRST)
    if period == 1 and count == 1:
        return 1, "every step is the same"
    if period == count:
        return count, f"all {count} steps, which then repeat"
    first = "the first step" if count == 1 else f"the first {count} steps"
    if period is None:
        return count, f"{first}; they never repeat"
    return count, f"{first}; they repeat after {period}"


def fraction_text(fraction: float) -> str:
    """Write a fraction briefly: 0.5, 1/3, 32/33, or four digits if it is not a simple ratio."""
    short = f"{fraction:.2g}"
    if float(short) == fraction:
        return short
    ratio = Fraction(fraction).limit_denominator(2_000)
    return str(ratio) if ratio and abs(ratio - Fraction(fraction)) < 1e-12 else f"{fraction:.4g}"


def value_text(value: object) -> str:
    """Write a parameter's value as the command line takes it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return "+".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
