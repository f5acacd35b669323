"""Tables in Markdown, of means and standard deviations over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from benchmarks.study.run import Outcome

__all__ = ["accuracy", "mean", "number", "spread", "statistic", "table"]

Measure = Callable[[Outcome], float]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def mean(outcomes: Iterable[Outcome], measure: Measure) -> float:
    """Return the mean over seeds; not a number if there are none."""
    values = [measure(one) for one in outcomes]
    return statistics.fmean(values) if values else float("nan")


def number(value: float, digits: int = 2) -> str:
    """Return a number, or a dash for what is none."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation over seeds; 0 of one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def statistic(outcomes: Sequence[Outcome], measure: Measure, digits: int = 2) -> str:
    """Return mean and standard deviation over seeds, or a dash for what was not run."""
    values = [measure(one) for one in outcomes]
    if not values:
        return "-"
    text = f"{statistics.fmean(values):.{digits}f}"
    return f"{text} ± {spread(values):.{digits}f}" if len(values) > 1 else text


def accuracy(outcomes: Sequence[Outcome]) -> str:
    """Return the accuracy over seeds, or how many of them diverged."""
    lost = sum(one.diverged for one in outcomes)
    if lost:
        return f"**diverged {lost}/{len(outcomes)}**"
    return statistic(outcomes, lambda one: one.accuracy)
