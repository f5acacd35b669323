"""This peer's own row in the table of the swarm: totals turned into rates."""

from __future__ import annotations

from typing import Any

from peers.reporting.status import Rows

__all__ = ["Pulse"]

#: Rates are over at least so many seconds, or they would jump with every step.
_SPAN = 1.0


class Pulse:
    """Notes how this peer does."""

    def __init__(self, rows: Rows, now: float) -> None:
        self._rows = rows
        self._since = now
        self._totals: dict[str, float] = {}
        self._rates: dict[str, float] = {}
        #: What is told now and then only, and holds until it is told again.
        self._last: dict[str, Any] = {}

    def beat(self, now: float, incarnation: int, *, totals: dict[str, float], **values: Any) -> None:
        """Note a row.

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
                self._rates = {name: (totals[name] - self._totals[name]) / span for name in totals}
            self._totals, self._since = dict(totals), now
        self._rows.note(
            incarnation,
            samples=int(totals["samples"]),
            samples_per_second=self._rates.get("samples"),
            bytes_per_second=self._rates.get("bytes"),
            wait_share=self._rates.get("waited"),
            **self._last,
        )
