"""The errors of this package.

    ValueError
      TopologyError             everything this package raises on bad input
        UnknownTopology         no topology has that name
        BadParameter            a parameter is unknown, of the wrong type, or out of range
        UnsupportedSize         the topology does not exist for that number of peers
        BadGraph                a graph or graph file is not a valid step of a schedule

Every message says what was wrong, where, and what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["BadGraph", "BadParameter", "TopologyError", "UnknownTopology", "UnsupportedSize", "unsupported"]


class TopologyError(ValueError):
    """The base of all errors of this package."""


class UnknownTopology(TopologyError):
    """No topology has that name."""


class BadParameter(TopologyError):
    """A parameter is unknown, of the wrong type, or out of range."""


class UnsupportedSize(TopologyError):
    """The topology does not exist for that number of peers."""


class BadGraph(TopologyError):
    """A graph or graph file is not a valid step of a schedule."""


def unsupported(name: str, n: int, rule: str, works: Callable[[int], bool]) -> UnsupportedSize:
    """Make the error for a number of peers that ``name`` does not support; it names the nearest supported sizes."""
    below = next((m for m in range(n - 1, 0, -1) if works(m)), None)
    above = next((m for m in range(n + 1, 2 * n + 2) if works(m)), None)
    near = " and ".join(str(m) for m in (below, above) if m is not None)
    hint = f"; the nearest supported sizes: n = {near}" if near else ""
    return UnsupportedSize(f"{name} needs {rule}, not n = {n}{hint}. The topology 'base' supports any n.")
