"""The replicas of a launch: each is the processes that hold it, which live, end and return as a unit.

Rows that lose another one of their crew end by themselves, as soon as they compute with it. The launcher helps: a row
that computes for long, or was stopped, is asked to end, and then ended.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

from launch.swarm.launched_peer import LaunchedPeer

__all__ = ["LaunchedReplica"]

#: Seconds that the rows of a crew have to end by themselves when one has died, and those until they are ended then.
_GRACE, _UNTIL_KILLED = 1.0, 3.0


class LaunchedReplica:
    """The processes of one replica: without a grid, one."""

    def __init__(self, rows: list[LaunchedPeer], leaving: float) -> None:
        """Begin.

        Args:
            rows: its processes.
            leaving: seconds that a row has to hand over what it holds, once it says that it leaves.
        """
        self.rows = rows
        self._leaving = leaving
        #: Injected restarts that have not come yet.
        self.restarts: list[Any] = []
        #: When its first row died in this life, which rows were asked to end, and which said that they leave.
        self._lost_at: float | None = None
        self._asked: set[int] = set()
        self._leaves: set[int] = set()

    @property
    def name(self) -> str:
        """What it is called in messages."""
        first = self.rows[0].seat.rank
        return f"rank {first}" if len(self.rows) == 1 else f"replica {first // len(self.rows)}"

    @property
    def runs(self) -> bool:
        """Whether any of its processes runs."""
        return any(row.running for row in self.rows)

    @property
    def failed(self) -> bool:
        """Whether all its processes have ended, and none of them well."""
        return not self.runs and all(row.code not in (None, 0) for row in self.rows)

    @property
    def on_purpose(self) -> bool:
        """Whether it ended by a fault that was asked for: what happens to a row happens to all."""
        return any(row.on_purpose for row in self.rows)

    @property
    def introduced(self) -> bool:
        """Whether all its rows have shown the cards of this life, so that they can find each other."""
        return all(row.fresh for row in self.rows)

    def starts(self) -> None:
        """Take in that all its processes are started."""
        self._lost_at = None
        self._asked.clear()
        self._leaves.clear()

    def died(self, now: float) -> None:
        """Take in that one of its processes has died."""
        self._lost_at = now if self._lost_at is None else self._lost_at

    def leaves(self, rank: int) -> None:
        """Take in that a row knows of the loss, and hands over what it holds."""
        self._leaves.add(rank)

    def due(self, now: float) -> Iterator[tuple[LaunchedPeer, int]]:
        """Yield the rows that are still there too long after the first has died, and the signal for each."""
        if self._lost_at is None:
            return
        for row in self.rows:
            rank, since = row.seat.rank, now - self._lost_at - _GRACE
            if not row.running or since < 0:
                continue
            if since > (self._leaving if rank in self._leaves else _UNTIL_KILLED):
                yield row, signal.SIGKILL
            elif rank not in self._asked | self._leaves:
                self._asked.add(rank)
                yield row, signal.SIGTERM
