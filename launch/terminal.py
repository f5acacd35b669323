"""Output for people: tables and text on stdout, progress and warnings on stderr."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["PIPED_WIDTH", "measured", "output", "waiting", "warn", "watched"]

Item = TypeVar("Item")

#: The width of piped output: no screen limits it, so no table is squeezed.
PIPED_WIDTH = 400
#: Nothing is said about work that takes less than this many seconds.
_PATIENCE = 0.5
#: Without a terminal, a line is printed after this many seconds, then whenever the time has doubled, and at least once
#: a minute: a user may be waiting, but a log should not fill with thousands of lines.
_FIRST_LINE, _MINUTE = 3.0, 60.0


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Let the command line decide how to end, where rich would exit with 1."""
        raise BrokenPipeError


def output() -> Console:
    """Return the console on stdout: as wide as the terminal, or wide and without escape codes when piped."""
    terminal = sys.stdout.isatty()
    return _Output(force_terminal=terminal, width=None if terminal else PIPED_WIDTH, highlight=False, markup=False)


def warn(sentence: str) -> None:
    """Print a warning on stderr, unless the sentence is empty."""
    if sentence:
        print(f"gossip: warning: {sentence}", file=sys.stderr, flush=True)


def watched(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield the items; where that takes long and stderr is a terminal, show how many are done."""
    with _progress() as progress:
        # Not progress.track: its counter stops for good where the display is not up yet at the first item.
        task = progress.add_task(what, total=len(items))
        for item in items:
            yield item
            progress.advance(task)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal's stderr that something is being worked on, where it takes long."""
    with _progress(count=False) as progress:
        progress.add_task(what, total=None)
        yield


@contextmanager
def measured(what: str) -> Iterator[Callable[[float], None]]:
    """Show a bar for work that tells, by the function it is given, which share of it is done; elsewhere, some lines."""
    if not sys.stderr.isatty():
        yield _Lines(what).tell
        return
    with _progress() as progress:
        task = progress.add_task(what, total=100)
        yield lambda share: progress.update(task, completed=round(100 * share))


class _Lines:
    """Progress as plain lines on stderr."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._next = _FIRST_LINE

    def tell(self, share: float) -> None:
        """Print a line if it is time for one; the end needs none, for the result is next."""
        passed = time.monotonic() - self._began
        if passed < self._next or share >= 1:
            return
        self._next = passed + min(passed, _MINUTE)
        left = f", about {passed / share - passed:.0f} s to go" if share > 0 else ""
        print(f"{self._what}: {share:.0%} after {passed:.0f} s{left}", file=sys.stderr, flush=True)


@contextmanager
def _progress(count: bool = True) -> Iterator[Progress]:
    columns: Iterable[BarColumn | MofNCompleteColumn] = [BarColumn(), MofNCompleteColumn()] if count else []
    terminal = sys.stderr.isatty()
    console = Console(stderr=True, force_terminal=terminal)
    progress = Progress(
        SpinnerColumn("line"),
        TextColumn("{task.description}", markup=False),
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not terminal,
    )
    timer = threading.Timer(_PATIENCE, progress.start)
    timer.daemon = True
    if terminal:
        timer.start()
    try:
        yield progress
    finally:
        timer.cancel()
        if timer.ident is not None:  # started: it may be starting the display right now
            timer.join()
        progress.stop()
