"""The table of a swarm, a line for each peer: the launcher shows it, and so do `gossip watch` and `gossip status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from peers.table.columns import COLUMNS, Column

__all__ = ["peer_table"]

_STYLES = {"dead": "red", "suspect": "yellow", "slow": "yellow", "left": "dim", "failed": "red", "was": "red"}
_GAP = 2


def peer_table(rows: Sequence[Mapping[str, Any]], width: int, *, of_replicas: bool = False) -> Table:
    """Return the table of these rows, which are by column, with as many of the columns as there is room for.

    A column that no row has is left out; None in a row is an empty cell. The members of the swarm that one row of each
    replica forms are ``of_replicas``: their ranks are the numbers of replicas.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = _fitting([column for column in COLUMNS if column.title and _wanted(column, rows)], rows, width)
    for column in columns:
        title = "replica" if of_replicas and column.name == "rank" else column.title
        table.add_column(title, justify="right" if column.form else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(column, row.get(column.name)) for column in columns))
    return table


def _wanted(column: Column, rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row.get(column.name) if column.optional else column.name in row for row in rows)


def _fitting(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], width: int) -> list[Column]:
    """Leave out columns until the rest fits: half a number would be worse than none."""
    needed = {
        column: max([len(column.title), *(len(_cell(column, row.get(column.name))) for row in rows)]) + _GAP
        for column in columns
    }
    for column in sorted((column for column in columns if column.spare), key=lambda column: column.spare):
        if sum(needed.values()) - _GAP > width:
            del needed[column]
    return list(needed)


def _cell(column: Column, value: Any) -> Text:
    if value is None:
        return Text("")
    if column.form:
        return Text(format(column.shown(value), column.form))
    first = str(value).partition(" ")[0].rstrip(",")
    return Text(str(value), style=_STYLES.get(first, "") if column.name == "state" else "")
