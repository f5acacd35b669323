"""The rows of the matrix: each a fault, as a function that has a swarm live through it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.bars import Bar
from benchmarks.chaos.harness import ChaosError, Session, Swarm
from benchmarks.chaos.outcome import Outcome, bars, measured

__all__ = ["ROWS", "Result", "Row", "Stage", "row", "run_row"]


@dataclass(frozen=True)
class Row:
    """One fault."""

    name: str
    text: str
    act: Callable[[Stage], None]
    #: Whether it needs network namespaces, or mounts, and so root.
    root: bool = False


#: All rows by name, in the order in which they are shown.
ROWS: dict[str, Row] = {}


def row(name: str, text: str, *, root: bool = False) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Declare a row."""

    def declare(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
        assert name not in ROWS
        ROWS[name] = Row(name, text, act, root)
        return act

    return declare


@dataclass
class Stage:
    """What a row has at hand, and where it leaves what it found."""

    session: Session
    name: str
    undisturbed: Outcome | None
    outcome: Outcome = field(default_factory=Outcome)
    #: What this row is held against beside what all are.
    own_bars: list[Bar] = field(default_factory=list)

    @contextmanager
    def swarm(self, *options: str, survivors: Collection[int], **more: Any) -> Iterator[Swarm]:
        """Launch a swarm; after the block its survivors train to the end, and are measured."""
        directory = more.pop("directory", None) or self.session.new_directory(self.name) / "run"
        with Swarm(self.session, directory, options, **more) as swarm:
            yield swarm
            swarm.finish(survivors)
            extra = self.outcome.extra
            self.outcome = measured(swarm, survivors)
            self.outcome.extra = extra

    def show(self, name: str, value: float, sense: str = "", limit: float = 0.0, unit: str = "") -> None:
        """Show one more figure; with a sense, it is held against a limit."""
        self.outcome.extra[name] = value
        if sense:
            self.own_bars.append(Bar(name, value, sense, limit, unit))

    def check(self, what: str, holds: bool) -> None:
        """Hold the row to something that is either so or not."""
        self.own_bars.append(Bar(what, float(holds), ">=", 1.0))


@dataclass(frozen=True)
class Result:
    """What a row came to."""

    name: str
    outcome: Outcome
    bars: list[Bar]
    seconds: float
    #: Why it did not come to its end, if it did not.
    error: str = ""

    @property
    def holds(self) -> bool:
        """Whether it came to its end with all bars held."""
        return not self.error and all(bar.holds for bar in self.bars)


def run_row(session: Session, name: str, undisturbed: Outcome | None) -> Result:
    """Run one row; never raises because of what a swarm does."""
    stage = Stage(session, name, undisturbed)
    began = time.monotonic()
    error = ""
    try:
        ROWS[name].act(stage)
    except ChaosError as failure:
        error = str(failure)
    except Exception:  # noqa: BLE001 - the other rows go on
        error = traceback.format_exc()
    held = [*bars(stage.outcome, undisturbed), *stage.own_bars]
    return Result(name, stage.outcome, held, time.monotonic() - began, error)
