"""The two-dimensional torus."""

from __future__ import annotations

import math

from topologies.plans import symmetric
from topologies.registry import register
from topologies.schedule import Edges, Plan
from topologies.topology_errors import BadParameter, unsupported

__all__ = ["torus"]


@register("torus", directed=False, sizes="rows x columns, so no prime above 3")
def torus(n: int, *, rows: int | None = None) -> Plan:
    """A grid with its edges glued: each peer exchanges with its four neighbours; O(n) steps.

    Without ``rows`` the grid is as square as n allows. For a prime n the only grid is a single row. That is a ring and
    mixes like one, so it is refused unless ``rows=1`` asks for it. Along a side of length 2 both directions lead to the
    same neighbour: one edge, not two.
    """
    if rows is None:
        rows = _squarest(n)
        if rows == 1 and n > 3:
            raise unsupported("torus", n, "n = rows x columns", lambda m: m <= 3 or _squarest(m) > 1)
    elif rows < 1 or n % rows:
        divisors = ", ".join(str(d) for d in range(1, n + 1) if n % d == 0)
        raise BadParameter(f"torus: rows must divide n = {n}: it can be {divisors}, not {rows}")
    columns = n // rows
    height = rows

    def out(rank: int, _: int) -> Edges:
        row, column = divmod(rank, columns)
        near = {
            (row - 1) % height * columns + column,
            (row + 1) % height * columns + column,
            row * columns + (column - 1) % columns,
            row * columns + (column + 1) % columns,
        } - {rank}
        return tuple([(other, 1.0 / (len(near) + 1)) for other in near])

    return symmetric(1, out)


def _squarest(n: int) -> int:
    """Return the largest divisor of n that is not above its square root."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
