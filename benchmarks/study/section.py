"""What a section of the study is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.study.cache import Results
from benchmarks.study.plan import Budget
from benchmarks.study.run import Outcome, Run

__all__ = ["Report", "Section"]


@dataclass(frozen=True)
class Report:
    """What a section is made from: the outcomes there are, and where figures go."""

    name: str
    budget: Budget
    results: Results
    #: Figures are written there; None: there are none.
    figures: Path | None

    def of(self, runs: Iterable[Run]) -> list[Outcome]:
        """Return the outcomes of those runs that were carried out."""
        return [self.results[run] for run in runs if run in self.results]

    @property
    def seeds(self) -> range:
        """The seeds."""
        return range(self.budget.seeds)

    def caption(self, what: str) -> str:
        """Return what stands above a table: what it shows, the command, the samples and the seeds."""
        return (
            f"{what} `python -m benchmarks.study {self.name} {self.budget.said}`: "
            f"{self.budget.samples:,} samples in all, {_seeds(self.budget.seeds)}."
        )

    def picture(self, name: str, shows: str, noise: str) -> str:
        """Return the lines that show a figure and say by which command it was made, and where its noise is seen."""
        seeds = "1 seed" if self.budget.seeds == 1 else f"means of {self.budget.seeds} seeds; {noise}"
        made = f"`python -m benchmarks.study {self.name} {self.budget.said}`"
        return f"![{shows.lower()}](study/{name}.svg)\n\n{shows}. {made}: {seeds}."


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds, mean ± standard deviation"


@dataclass(frozen=True)
class Section:
    """A sub-command."""

    name: str
    runs: Callable[[Budget], list[Run]]
    render: Callable[[Report], str]
