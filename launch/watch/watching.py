"""The status of a swarm, once (`gossip status`) or repeatedly (`gossip watch`), through any of its peers.

On a terminal, a table is redrawn with each look. Elsewhere each look prints one line, and one line for each member that
joined, left or changed its state.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gossip.grids import row_of_run
from launch.watch.invitation import Invitation
from launch.watch.lookout import Lookout, NobodyAnswers
from launch.watch.peer_table import peer_table
from launch.watch.picture import GONE, TROUBLED, status
from launch.watch.rows_lookout import RowsLookout
from peers.table.columns import COLUMNS
from peers.table.lives import life_text

__all__ = ["NOBODY", "SOME_TROUBLED", "show", "table", "watch"]

#: Exit codes: a member is suspect or dead; no peer answers.
SOME_TROUBLED, NOBODY = 1, 3

#: Pictures, each with the place that it came from.
Pictures = list[tuple[dict[str, Any], str]]


def show(invitation: Invitation, console: Console, *, as_json: bool, timeout: float = 5.0, rows: bool = False) -> int:
    """Look once, print the status, and return the exit code.

    Args:
        invitation: to the swarm.
        console: where it is printed.
        as_json: as JSON; with ``rows``, a list.
        timeout: seconds that each peer has for its answer.
        rows: every row of the replicas, not one of them.
    """
    with _Looks(invitation, rows=rows) as looks:
        try:
            pictures = looks.look(timeout)
        except NobodyAnswers as error:
            return _no_answer(str(error))
    if as_json:
        told = [status(picture, place) for picture, place in pictures]
        print(json.dumps(told if rows else told[0], indent=2, allow_nan=False))
    else:
        for picture, place in pictures:
            console.print(_headline(picture, place))
            console.print(table(picture, console.width))
    members = [member for picture, _ in pictures for member in picture["members"]]
    return SOME_TROUBLED if any(member["membership"] in TROUBLED for member in members) else 0


class _Looks:
    """Looks at one swarm, or at those of all rows of a grid."""

    def __init__(self, invitation: Invitation, *, rows: bool) -> None:
        self._one = None if rows else Lookout(invitation)
        self._all = RowsLookout(invitation) if rows else None

    def __enter__(self) -> _Looks:
        return self

    def __exit__(self, *_: object) -> None:
        for lookout in (self._one, self._all):
            if lookout is not None:
                lookout.__exit__()

    def look(self, timeout: float) -> Pictures:
        if self._all is not None:
            return self._all.look(timeout)
        assert self._one is not None
        return [(self._one.look(timeout), self._one.place)]


def watch(
    invitation: Invitation,
    console: Console,
    *,
    every: float = 1.0,
    timeout: float = 5.0,
    rows: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Look until no peer answers, or until Ctrl-C; return the exit code. With ``rows``, at every row of a grid."""
    seen: Viewer = _Screen(console) if console.is_terminal else _Lines(console)
    through: list[str] = []
    try:
        with _Looks(invitation, rows=rows) as looks, seen:
            while True:
                pictures = looks.look(timeout)
                places = [place for _, place in pictures]
                for before, now in zip(through, places, strict=False):
                    if before != now:
                        seen.tell(f"{before} no longer answers; continuing through {now}")
                through = places
                seen.show(pictures)
                pause(every)
    except NobodyAnswers as error:
        since = "the swarm has ended, or is unreachable from here: " if through else ""
        return _no_answer(f"{since}{error}")


def _no_answer(error: str) -> int:
    print(f"gossip: error: {' '.join(error.splitlines())}", file=sys.stderr)
    return NOBODY


class Viewer(Protocol):
    """Shows pictures."""

    def __enter__(self) -> object:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """End; what was shown last stays."""

    def show(self, pictures: Pictures) -> None:
        """Show pictures: of the swarm, or of each row."""

    def tell(self, sentence: str) -> None:
        """Show a line beside the pictures."""


class _Screen:
    """A table that is drawn again and again."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> object:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, pictures: Pictures) -> None:
        width = self._live.console.width
        parts = [part for picture, place in pictures for part in (_headline(picture, place), table(picture, width))]
        self._live.update(Group(*parts), refresh=True)

    def tell(self, sentence: str) -> None:
        self._live.console.print(Text(f"gossip: {sentence}", style="bold"), soft_wrap=True)


class _Lines:
    """A line per look, and per change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        #: What each member last was, by the name of its swarm.
        self._before: dict[str, dict[int, tuple[int, str]]] = {}

    def __enter__(self) -> object:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, pictures: Pictures) -> None:
        for picture, place in pictures:
            self._show(picture, place)

    def _show(self, picture: dict[str, Any], place: str) -> None:
        run = picture["setup"]["run"]
        before = self._before.get(run, {})
        now = {one["rank"]: (one["life"], _doing(one)) for one in picture["members"]}
        where = {one["rank"]: one["endpoint"] for one in picture["members"]}
        for rank, (life, doing) in now.items():
            if before.get(rank) != (life, doing):
                unit = "replica" if _is_of_a_row(picture) else "rank"
                self._print(f"{unit} {rank}: {doing}; life {life_text(life)}, at {where[rank]}")
        self._before[run] = now
        self._print(_headline(picture, place).plain)

    def tell(self, sentence: str) -> None:
        self._print(sentence)

    def _print(self, text: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {text}", soft_wrap=True)
        self._console.file.flush()  # a program that reads along needs the line now


def table(picture: dict[str, Any], width: int) -> Table:
    """Return the table of a picture, no wider than that."""
    return peer_table([_row(member) for member in picture["members"]], width, of_replicas=_is_of_a_row(picture))


def _is_of_a_row(picture: dict[str, Any]) -> bool:
    """Whether the members are replicas of several processes, seen through one of their rows."""
    return row_of_run(picture["setup"]["run"]) is not None


def _row(member: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a member; a former member has only the columns that still apply."""
    gone = member["membership"] in GONE
    row = {one.name: None if gone and one.living else member[one.name] for one in COLUMNS if one.in_json}
    return {**row, "state": _doing(member)}


def _doing(member: dict[str, Any]) -> str:
    """Return the membership state of a member and, while it is a member, what it is doing."""
    known: str = member["membership"]
    if known in GONE or member["state"] is None:
        return str(known)
    # A suspect is silent: nobody knows whether it still does what it last said.
    return f"{known}, was {member['state']}" if known in TROUBLED else f"{known}, {member['state']}"


def _headline(picture: dict[str, Any], place: str) -> Text:
    members = picture["members"]
    states = Counter(member["membership"] for member in members)
    # What a silent member said last is old.
    living = [member for member in members if member["membership"] not in GONE | TROUBLED]
    steps = [member["step"] for member in living if member["step"] is not None]
    losses = [member["loss"] for member in living if member["loss"] is not None]
    parts = [", ".join(f"{count} {state}" for state, count in sorted(states.items()))]
    if steps:
        parts.append(f"step {min(steps)} to {max(steps)}" if min(steps) < max(steps) else f"step {steps[0]}")
    if losses:
        parts.append(f"loss {sum(losses) / len(losses):.4f}")
    rates = [member["samples_per_second"] or 0 for member in living]
    parts.append(f"{sum(rates):.0f} samples/s")
    if picture.get("cut_short"):
        parts.append("there are too many members to show all")
    name, unit = picture["setup"]["run"], "rank"
    if (of_row := row_of_run(name)) is not None:
        name, unit = f"{of_row[0]}, row {of_row[2]} of {of_row[1]} in each replica", "replica"
    return Text(f"{name}: {'; '.join(parts)}; by {unit} {picture['shown_by']} at {place}")
