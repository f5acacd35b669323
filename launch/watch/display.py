"""The output of the launcher: the lines of all peers and, on a terminal, a live table below them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from launch.watch.peer_table import peer_table
from launch.watch.picture import behind
from peers.endings import LOST_CREW
from peers.table.columns import RATES, TOLD

__all__ = ["CUT_OFF", "Display", "how"]

#: Stands for the exit code of a process that ended with 0 and yet did not end its training: no exit code of a process.
CUT_OFF = 1001

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
#: Exit codes after a request to stop: those of a peer, and those of any other program.
_STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)

#: How the words of a peer that failed begin.
_SAID = "failed: "


@dataclass
class _Row:
    host: str = ""
    state: str = "starting"
    #: What the peer reported last, by column.
    status: dict[str, Any] = field(default_factory=dict)


class Display:
    """Shows a launch as it goes."""

    def __init__(
        self,
        console: Console,
        ranks: Sequence[int],
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            console: where to.
            ranks: of the peers that it shows.
            quiet: leave out the peers' own lines; they are in their logs in any case.
            clock: monotonic seconds.
        """
        self._console = console
        self._quiet = quiet
        self._clock = clock
        self._width = len(str(max(ranks)))
        self._rows = {rank: _Row() for rank in ranks}
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        self._drawn = 0.0
        self._writing = False

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self.refresh(force=True)
            self._live.stop()

    def line(self, rank: int, text: str) -> None:
        """Show a line of a peer's output."""
        if not self._quiet:
            prefix = Text(f"[{rank:>{self._width}}] ", style=_COLOURS[rank % len(_COLOURS)])
            self._write(prefix + Text.from_ansi(text))

    def event(self, text: str) -> None:
        """Show a line of the launcher itself."""
        self._write(Text(f"gossip: {text}", style="bold"))

    def started(self, rank: int, host: str, lives: int) -> None:
        """Note that a peer was started."""
        self._rows[rank] = _Row(host)
        if lives > 1:
            self.event(f"rank {rank} is restarted")

    def status(self, rank: int, status: dict[str, Any]) -> None:
        """Take in a peer's report."""
        row = self._rows[rank]
        row.status.update(status)
        row.state = str(status.get("state", row.state))
        self.refresh()

    def ended(self, rank: int, code: int, why: str = "", *, asked: bool = False) -> None:
        """Note how a peer ended, what it said about that, and whether it was asked to."""
        row = self._rows[rank]
        stopped = asked and code in _STOPPED
        row.state = "finished" if code == 0 else "stopped" if stopped else how(code)
        row.status.update(dict.fromkeys(RATES.values()))
        if code != 0 and not stopped:
            # Where its lines are shown, its error was among them.
            said = f": {why.removeprefix(_SAID)}" if self._quiet and why.startswith(_SAID) else ""
            self.event(f"rank {rank} {how(code)}{said}")
        self.refresh(force=True)

    def refresh(self, force: bool = False) -> None:
        """Draw the table again, a few times a second at most."""
        if self._live is not None and (force or self._clock() - self._drawn > 0.2):
            self._drawn = self._clock()
            self._write(self.table())

    def cut_short(self) -> None:
        """Raise `KeyboardInterrupt` out of what is being written, if anything is; for a signal handler."""
        if self._writing:
            self._writing = False
            raise KeyboardInterrupt

    def _write(self, what: Text | Table) -> None:
        self._writing = True
        try:
            if isinstance(what, Text):
                self._console.print(what, soft_wrap=True)
            elif self._live is not None:
                self._live.update(what, refresh=True)
        finally:
            self._writing = False

    def table(self) -> Table:
        """Return the table of all peers."""
        lags = behind([row.status.get("step") for row in self._rows.values()])
        rows = [
            {
                **{column.name: row.status.get(column.name) for column in TOLD},
                "rank": rank,
                "host": row.host,
                "state": row.state,
                "lag": lag,
            }
            for (rank, row), lag in zip(self._rows.items(), lags, strict=True)
        ]
        return peer_table(rows, self._console.width)


def how(code: int) -> str:
    """Say how a process ended."""
    if code == 0:
        return "ended with exit code 0"
    if code == CUT_OFF:
        return "ended with exit code 0 without leaving the swarm, as by os._exit()"
    if code == LOST_CREW:
        return f"ended because its crew lost a row (exit code {code})"
    if code > 0:
        return f"failed with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
