"""The rows of the matrix: each a fault, as a function that has a swarm live through it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from benchmarks.bars import Bar
from benchmarks.chaos.harness import ChaosError, Session, Swarm
from benchmarks.chaos.outcome import LOSS, Outcome, bars, measured

__all__ = ["ROWS", "UNDISTURBED", "Result", "Row", "Stage", "reference", "row", "run_row"]


@dataclass(frozen=True)
class Row:
    """One fault."""

    name: str
    text: str
    act: Callable[[Stage], None]
    #: Whether it needs network namespaces, or mounts, and so root.
    root: bool = False
    #: Bars that cannot hold, by the nature of the fault, and why. They are shown, and nobody is held to them.
    exempt: tuple[str, ...] = ()
    why: str = ""


UNDISTURBED = "undisturbed"
#: How often a row is run, at most, to know its loss.
RUNS = 3
#: Undisturbed swarms that rows are compared with.
REFERENCES = 4
#: All rows by name, in the order in which they are shown.
ROWS: dict[str, Row] = {}


def row(
    name: str, text: str, *, root: bool = False, exempt: tuple[str, ...] = (), why: str = ""
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Declare a row."""

    def declare(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
        assert name not in ROWS
        ROWS[name] = Row(name, text, act, root, exempt, why)
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
        return not self.error and not self.failed

    @property
    def failed(self) -> list[Bar]:
        """The bars that do not hold, save those that cannot."""
        return [bar for bar in self.bars if not bar.holds and bar.name not in ROWS[self.name].exempt]

    @property
    def loss_alone(self) -> bool:
        """Whether its loss is all that is wrong."""
        return not self.error and [bar.name for bar in self.failed] == [LOSS]


def run_row(session: Session, name: str, undisturbed: Outcome | None) -> Result:
    """Run one row; never raises because of what a swarm does.

    Two runs are never the same, since messages come in another order each time. So where the loss alone is above its
    bar the row is run again, up to three times in all, and the mean of the runs has to hold.
    """
    result = _run_once(session, name, undisturbed)
    losses = [result.outcome.loss]
    while result.loss_alone and len(losses) < RUNS:
        again = _run_once(session, name, undisturbed)
        losses.append(again.outcome.loss)
        if again.error or not (again.holds or again.loss_alone):
            return again
        again.outcome.loss = fmean(losses)
        again.outcome.extra["runs"] = len(losses)
        kept = [bar for bar in again.bars if bar.name != LOSS]
        loss = [bar for bar in bars(again.outcome, undisturbed) if bar.name == LOSS]
        result = replace(again, bars=[*kept, *loss], seconds=result.seconds + again.seconds)
    return result


def reference(session: Session) -> Outcome:
    """Return the outcome of undisturbed swarms: of the first, with the mean of all their losses and accuracies."""
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: _run_once(session, UNDISTURBED, None), range(REFERENCES)))
    for result in results:
        if not result.holds:
            raise ChaosError(f"undisturbed: {result.error or [str(bar) for bar in result.failed]}")
    outcome = results[0].outcome
    outcome.accuracy = fmean(result.outcome.accuracy for result in results)
    outcome.loss = fmean(result.outcome.loss for result in results)
    return outcome


def _run_once(session: Session, name: str, undisturbed: Outcome | None) -> Result:
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
