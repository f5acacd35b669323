"""The grid of a run: the processes of a crew hold one replica between them, and the replicas gossip.

A grid is written P_r x P_c, as in ``2x4``: two rows, four replicas, eight processes. The rows of a replica are its
crew. Their ranks follow one another, so a hostfile that is filled in order puts a crew on one host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gossip.errors import SettingsError

__all__ = ["Grid", "row_of_run", "run_of_row"]

_ROW = re.compile(r"(.*)/(\d{1,6})x/(\d{1,6})", re.ASCII)
_WRITTEN = re.compile(r"(\d{1,6})[xX](\d{1,6})", re.ASCII)


@dataclass(frozen=True)
class Grid:
    """P_r rows in each of P_c replicas. The rank of a process is ``replica * rows + row``."""

    #: P_r: the processes that hold one replica.
    rows: int
    #: P_c: the replicas that gossip.
    replicas: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.replicas < 1:
            raise SettingsError(
                f"a grid needs at least one of its rows and of its replicas, not {self.rows} and {self.replicas}"
            )

    @classmethod
    def parse(cls, text: str) -> Grid:
        """Read ``2x4``: two rows, four replicas."""
        found = _WRITTEN.fullmatch(text.strip())
        if found is None or not int(found[1]) or not int(found[2]):
            raise SettingsError(
                f"{text!r} is not a grid: write the rows of a crew, x and the number of replicas, such as 2x4"
            )
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def all_of(cls, processes: int) -> Iterator[Grid]:
        """Yield every grid of this many processes, fewest rows first."""
        if processes < 1:
            raise SettingsError(f"processes must be at least 1, not {processes}")
        for rows in range(1, processes + 1):
            if processes % rows == 0:
                yield cls(rows, processes // rows)

    @property
    def size(self) -> int:
        """The number of processes."""
        return self.rows * self.replicas

    def replica(self, rank: int) -> int:
        """Return the replica that a process belongs to."""
        return self._checked(rank) // self.rows

    def row(self, rank: int) -> int:
        """Return the row of a process in its crew."""
        return self._checked(rank) % self.rows

    def rank(self, replica: int, row: int) -> int:
        """Return the rank of a row of a replica."""
        if not 0 <= replica < self.replicas or not 0 <= row < self.rows:
            raise SettingsError(f"the grid {self} has no replica {replica} with row {row}; both count from 0")
        return replica * self.rows + row

    def crew(self, replica: int) -> range:
        """Return the ranks of a replica's rows."""
        return range(self.rank(replica, 0), self.rank(replica, 0) + self.rows)

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise SettingsError(f"rank {rank} is not in the grid {self}, which has the ranks 0 to {self.size - 1}")
        return rank

    def __str__(self) -> str:
        return f"{self.rows}x{self.replicas}"


def run_of_row(run: str, rows: int, row: int) -> str:
    """Return the name of the swarm in which one row of each replica exchanges its part."""
    return f"{run[:48]}/{rows}x/{row}"


def row_of_run(run: str) -> tuple[str, int, int] | None:
    """Return the run, the rows of a replica and the row that the name of a swarm says; None if it is a whole run."""
    found = _ROW.fullmatch(run)
    return None if found is None else (found[1], int(found[2]), int(found[3]))
