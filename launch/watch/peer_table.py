"""The table of a swarm, a line for each peer: the launcher shows it, and so do `gossip watch` and `gossip status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

__all__ = ["peer_table"]

#: How each figure is written; what is not here is text.
_FORMS = {
    "rank": "d",
    "life": "d",
    "step": "d",
    "loss": ".4f",
    "samples/s": ".0f",
    "lag": "d",
    "peers": "d",
    "MB/s": ".2f",
    "weight": ".2f",
    "apart": ".1e",
}
_STYLES = {"dead": "red", "suspect": "yellow", "slow": "yellow", "left": "dim", "failed": "red", "was": "red"}


#: What is left out first where the terminal is narrow: half a number would be worse than none.
_SPARE = ("sends", "apart", "weight", "peers", "MB/s", "endpoint", "host", "life", "samples/s", "lag")
_GAP = 2


def peer_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], width: int) -> Table:
    """Return the table with as many of these columns as there is room for; None in a row is an empty cell."""
    # How parcels go out is only of interest where something is done about it.
    columns = [name for name in columns if name != "sends" or any(row.get(name) for row in rows)]
    columns = _fitting(columns, rows, width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in _FORMS else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(name, row.get(name)) for name in columns))
    return table


def _fitting(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    needed = {name: max([len(name), *(len(_cell(name, row.get(name))) for row in rows)]) + _GAP for name in columns}
    for name in _SPARE:
        if sum(needed.values()) - _GAP > width:
            needed.pop(name, None)
    return list(needed)


def _cell(name: str, value: Any) -> Text:
    if value is None:
        return Text("")
    if name in _FORMS:
        return Text(format(value, _FORMS[name]))
    first = str(value).partition(" ")[0].rstrip(",")
    return Text(str(value), style=_STYLES.get(first, "") if name == "state" else "")
