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
        """Return what stands above a table: what it shows, the command, the seeds and the samples."""
        seeds = "1 seed" if self.budget.seeds == 1 else f"{self.budget.seeds} seeds, mean ± standard deviation"
        return (
            f"{what} `python -m benchmarks.study {self.name} {self.budget.said}`: "
            f"{self.budget.samples:,} samples in all, {seeds}."
        )

    def picture(self, name: str, text: str) -> str:
        """Return the line that shows a figure."""
        return f"![{text}](study/{name}.svg)"


@dataclass(frozen=True)
class Section:
    """A sub-command."""

    name: str
    runs: Callable[[Budget], list[Run]]
    render: Callable[[Report], str]
