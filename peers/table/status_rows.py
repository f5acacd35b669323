"""The status of each peer, as the peers tell each other: the table that any of them can show.

Every peer notes its own row now and then, and passes on its own and a few of the others', in turns, so that what is
sent does not grow with the swarm. Of two rows of a rank the later one counts: by life, then by number.
"""

from __future__ import annotations

import threading
from typing import Any

import msgpack

from peers.table.columns import LONGEST, TOLD

__all__ = ["Rows"]

_NAMES = tuple(column.name for column in TOLD)
#: Rows of others that go with the own one.
_OTHERS = 31
#: Ranks that are kept.
_LIMIT = 1 << 16


class Rows:
    """The rows of all ranks that have been heard of: a topic of the bulletin."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._number = 0
        self._rows: dict[int, list[Any]] = {}
        self._next = 0
        #: The trainer notes, the gossip thread hears and shows.
        self._lock = threading.Lock()

    def note(self, incarnation: int, **values: Any) -> None:
        """Note the status of this peer, by column; what is not given is not known."""
        unknown = values.keys() - set(_NAMES)
        if unknown:
            raise ValueError(f"no column {sorted(unknown)}")
        # The other peers reject a whole row for one invalid value.
        told = [values[one.name] if one.accepts(values.get(one.name)) else None for one in TOLD]
        self._number += 1
        with self._lock:
            self._rows[self._rank] = [self._rank, incarnation, self._number, *told]

    def all(self) -> dict[int, dict[str, Any]]:
        """Return what is known of each rank, by column."""
        with self._lock:
            rows = list(self._rows.values())
        return {row[0]: {"incarnation": row[1], **dict(zip(_NAMES, row[3:], strict=True))} for row in sorted(rows)}

    def own(self) -> dict[str, Any]:
        """Return this peer's own row, by column; in any thread, without a wait."""
        row = self._rows.get(self._rank)
        return {} if row is None else dict(zip(_NAMES, row[3:], strict=True))

    def encode(self) -> bytes:
        """Return the own row and the next few of the others."""
        with self._lock:
            others = [rank for rank in self._rows if rank != self._rank]
            chosen = [others[(self._next + place) % len(others)] for place in range(min(_OTHERS, len(others)))]
            self._next = (self._next + len(chosen)) % max(1, len(others))
            ranks = [self._rank, *chosen] if self._rank in self._rows else chosen
            packed: bytes = msgpack.packb([self._rows[rank] for rank in ranks])
        return packed

    def merge(self, data: bytes) -> bool:
        """Take in the rows that are later than ours. Nothing is passed on at once: there is always a next row."""
        try:
            rows = msgpack.unpackb(
                data, max_array_len=64, max_map_len=0, max_ext_len=0, max_bin_len=0, max_str_len=LONGEST
            )
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise ValueError(f"not msgpack: {error!r:.80}") from None
        if not isinstance(rows, list) or not all(map(_is_valid, rows)):
            raise ValueError("the message has rows that are not valid")
        with self._lock:
            for row in rows:
                known = self._rows.get(row[0])
                later = known is None or (row[1], row[2]) > (known[1], known[2])
                if row[0] != self._rank and later and (known is not None or len(self._rows) < _LIMIT):
                    self._rows[row[0]] = row
        return False


def _is_valid(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != 3 + len(TOLD):
        return False
    if not all(type(value) is int and 0 <= value < 1 << 53 for value in row[:3]):
        return False
    return all(value is None or column.accepts(value) for column, value in zip(TOLD, row[3:], strict=True))
