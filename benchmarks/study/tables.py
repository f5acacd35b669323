"""Tables in Markdown, of means and standard deviations over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from benchmarks.study.run import Outcome

__all__ = ["accuracy", "difference", "mean", "number", "percent", "spread", "statistic", "table"]

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
    """Return mean and standard deviation over seeds, or a dash for what was not run.

    Where some are infinite, it is of the others, with how many of how many those are.
    """
    values = [measure(one) for one in outcomes]
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return "inf" if values else "-"
    text = f"{statistics.fmean(finite):.{digits}f}"
    if len(finite) > 1:
        text += f" ± {spread(finite):.{digits}f}"
    return text if len(finite) == len(values) else f"{text} ({len(finite)}/{len(values)})"


def accuracy(outcomes: Sequence[Outcome]) -> str:
    """Return the accuracy over seeds, or how many of them diverged."""
    lost = sum(one.diverged for one in outcomes)
    if lost:
        return f"**diverged {lost}/{len(outcomes)}**"
    return statistic(outcomes, lambda one: one.accuracy)


def percent(outcome: Outcome) -> float:
    """Return the accuracy, which is nothing where it diverged."""
    return 0.0 if outcome.diverged else outcome.accuracy


def difference(found: Sequence[Outcome], baseline: Sequence[Outcome]) -> str:
    """Return how much more accurate outcomes are than others with the same seeds: mean and standard deviation."""
    if not found or len(found) != len(baseline):
        return "-"
    each = [percent(one) - percent(other) for one, other in zip(found, baseline, strict=True)]
    return f"{statistics.fmean(each):+.2f}" + (f" ± {spread(each):.2f}" if len(each) > 1 else "")
