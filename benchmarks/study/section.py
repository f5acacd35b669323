"""What a section of the study is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.study.cache import Results
from benchmarks.study.plan import METHODS, Budget, Method
from benchmarks.study.rates import Rates
from benchmarks.study.run import Outcome, Run
from benchmarks.study.tables import mean, number

__all__ = ["Cell", "Report", "Section", "tuned"]


@dataclass(frozen=True)
class Cell:
    """What is reported of one method in one situation: a run without rate and seed, and whose best rate it has."""

    template: Run
    #: None: its own.
    like: Run | None = None

    @property
    def trial(self) -> Run:
        """What the rate is chosen for."""
        return self.like or self.template


def tuned(method: Method, peers: int, budget: Budget, **changes: Any) -> Run:
    """Return the run that a method's rate is chosen for, with something changed."""
    of = METHODS[method.like] if method.like else method
    return of.run(peers, budget).but(**changes)


@dataclass(frozen=True)
class Report:
    """What a section is made from: the outcomes there are, and where figures go."""

    name: str
    rates: Rates
    results: Results
    #: Figures are written there; None: there are none.
    figures: Path | None

    @property
    def budget(self) -> Budget:
        """How much was to be run."""
        return self.rates.budget

    def of(self, cell: Cell) -> list[Outcome]:
        """Return the outcomes of a cell, one for each seed that was run."""
        return [self.results[run] for run in self.rates.runs(cell.template, cell.like) if run in self.results]

    def rate(self, cell: Cell) -> str:
        """Return the rate of a cell."""
        best = self.rates.best(cell.trial)
        return "-" if best is None else f"{best:g}"

    def kilobytes(self, cell: Cell) -> str:
        """Return what each peer of a cell sends per step, all overheads included, in kB."""
        steps = cell.template.samples // cell.template.batch
        return number(mean(self.of(cell), lambda one: one.bytes / steps / 1e3), 1)

    def caption(self, what: str, samples: int = 0) -> str:
        """Return what stands above a table: what it shows, the command, the samples (the budget's) and seeds."""
        return (
            f"{what} `python -m benchmarks.study {self.name} {self.budget.said}`: "
            f"{samples or self.budget.samples:,} samples in all, {_seeds(self.budget.count)}."
        )

    def picture(self, name: str, shows: str, noise: str) -> str:
        """Return the lines that show a figure and say by which command it was made, and where its noise is seen."""
        seeds = "1 seed" if self.budget.count == 1 else f"means of {self.budget.count} seeds; {noise}"
        made = f"`python -m benchmarks.study {self.name} {self.budget.said}`"
        return f"![{shows.lower()}](study/{name}.svg)\n\n{shows}. {made}: {seeds}."


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds, mean ± standard deviation"


@dataclass(frozen=True)
class Section:
    """A sub-command."""

    name: str
    cells: Callable[[Budget], list[Cell]]
    render: Callable[[Report], str]

    def templates(self, budget: Budget) -> list[Run]:
        """Return what rates are chosen for."""
        return list(dict.fromkeys(cell.trial for cell in self.cells(budget)))

    def runs(self, rates: Rates) -> list[Run]:
        """Return the runs that are reported, all cells of a seed before the next seed."""
        each = [rates.runs(cell.template, cell.like) for cell in self.cells(rates.budget)]
        return list(dict.fromkeys(run for seed in zip(*filter(None, each), strict=True) for run in seed))
