"""The rate of every method: the best of the same few, by runs whose seeds are not reported."""

from __future__ import annotations

from statistics import fmean

from benchmarks.study.cache import Results
from benchmarks.study.plan import Budget
from benchmarks.study.run import Outcome, Run

__all__ = ["Rates", "score", "trials"]


def trials(template: Run, budget: Budget) -> list[Run]:
    """Return the runs that a method's rate is chosen by; none if there is one rate."""
    of = budget.trials[template.optimizer]
    if len(of.rates) == 1:
        return []
    return [template.but(rate=template.rate * rate, seed=seed) for rate in of.rates for seed in of.seeds]


def score(run: Run, outcome: Outcome) -> float:
    """Return how good an outcome is, the more the better: minus the loss of a text, else the accuracy."""
    if outcome.diverged:
        return float("-inf")
    return -outcome.validation_loss if run.optimizer == "adamw" else outcome.accuracy


class Rates:
    """The rates that were chosen, and the runs with them."""

    def __init__(self, budget: Budget, found: Results) -> None:
        self.budget = budget
        self._found = found

    def best(self, template: Run) -> float | None:
        """Return the best of the rates that were tried; None where a trial is lacking.

        Args:
            template: a run whose rate is what the rates are multiplied by, and whose seed does not count.
        """
        of = self.budget.trials[template.optimizer]
        if len(of.rates) == 1:
            return of.rates[0]
        if any(run not in self._found for run in trials(template, self.budget)):
            return None

        def mean(rate: float) -> float:
            tried = [template.but(rate=template.rate * rate, seed=seed) for seed in of.seeds]
            return fmean(score(run, self._found[run]) for run in tried)

        return max(of.rates, key=mean)

    def runs(self, template: Run, like: Run | None = None) -> list[Run]:
        """Return the runs that are reported, with the best rate of the template, or of another one.

        None where the rate is not known yet.
        """
        best = self.best(like or template)
        if best is None:
            return []
        return [template.but(rate=template.rate * best, seed=seed) for seed in self.budget.seeds]
