"""This peer's own row in the table of the swarm: totals turned into rates.

There is one row. The peers pass it on among themselves, and the launcher gets the same one over its channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peers.table.columns import RATES
from peers.table.status_rows import Rows

__all__ = ["Pulse", "rates"]

#: Rates are over at least this many seconds, or they would jump with every step.
_SPAN = 1.0


def rates(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return the columns that are rates, from the totals at two times and the seconds between them."""
    return {column: (after[total] - before[total]) / seconds for total, column in RATES.items()}


class Pulse:
    """Notes the status of this peer."""

    def __init__(self, rows: Rows, now: float) -> None:
        self._rows = rows
        self._since = now
        self._totals: dict[str, float] = {}
        self._rates: dict[str, float] = {}
        #: The last value of each column; some are told only now and then.
        self._last: dict[str, Any] = {}

    def beat(self, now: float, incarnation: int, *, totals: Mapping[str, float], **values: Any) -> dict[str, Any]:
        """Note a row for the other peers, and return it for the launcher.

        Args:
            now: the time.
            incarnation: this peer's life.
            totals: samples, bytes sent and seconds waited since the start.
            values: columns of the table as they are; None or nothing keeps what was told before.
        """
        self._last |= {name: value for name, value in values.items() if value is not None}
        span = now - self._since
        if span >= _SPAN or not self._totals:
            if self._totals and span > 0:
                self._rates = rates(self._totals, totals, span)
            self._totals, self._since = dict(totals), now
        row = {"samples": int(totals["samples"]), **self._rates, **self._last}
        self._rows.note(incarnation, **row)
        return row
